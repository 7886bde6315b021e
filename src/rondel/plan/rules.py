"""What makes a plan legal, whoever wrote it: six rules, and for each a sentence.

Every one of the 16 ways to cut the ring is legal, and so are the cuts around `label`, which a plan
may name or not; the rules are about stages that are unknown, missing, doubled or out of order, and
about numbers of copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from rondel.errors import RondelError
from rondel.plan.diagnostics import Place, closest_words, error_at, join_words, nearest
from rondel.plan.pieces import ALIASES, ORDER, STAGES, Piece, Written, write
from rondel.plan.presets import PRESETS


class Fault(NamedTuple):
    """A rule that is broken, and where."""

    sentence: str
    piece: int  # as many as there are pieces: behind the last one
    stage: int | None = None  # of the piece; None: its number of copies


def first_fault(pieces: Sequence[Piece]) -> Fault | None:
    """The first rule that these pieces break, if they break one."""
    for rule in (_known, _in_order, _counted, _ranged, _one_update, _divisible):
        fault = rule(pieces)
        if fault:
            return fault
    return None


def check_rules(fault: Fault, written: Written) -> RondelError:
    """The error for a fault in what is written."""
    return error_at(fault.sentence, written.text, _place(fault, written))


def _place(fault: Fault, written: Written) -> Place:
    if fault.piece == len(written.stages):
        return len(written.text) + 1, len(written.text) + 2
    if fault.stage is None:
        return written.copies[fault.piece]
    return written.stages[fault.piece][fault.stage]


def _known(pieces: Sequence[Piece]) -> Fault | None:
    alone = [len(piece.stages) for piece in pieces] == [1]
    for i, piece in enumerate(pieces):
        for j, stage in enumerate(piece.stages):
            if stage not in ORDER:
                return Fault(_unknown(stage, alone), i, j)
    return None


def _unknown(name: str, alone: bool) -> str:
    if name in ALIASES:  # only from Python: a text's aliases are stages by now
        stages = ", ".join(map(repr, ALIASES[name]))
        return f"{name!r} is short for several stages; a Piece names each of them: ({stages})."
    if name in PRESETS:
        return f"{name} is a plan of its own and stands alone: it is `{PRESETS[name].text}`."
    what = "no stage and no plan" if alone else "no stage"
    names = [*ORDER, *ALIASES, *(PRESETS if alone else ())]
    near = closest_words(name, names)
    hint = f"did you mean {near}?" if near else f"there are {join_words(names, 'and')}."
    return f"There is {what} named {name!r}; {hint}"


def _wanted(pieces: Sequence[Piece]) -> tuple[str, ...]:
    """The stages that there must be, in order: those of every plan, and what else is named."""
    named = {stage for piece in pieces for stage in piece.stages}
    return tuple(stage for stage in ORDER if stage in STAGES or stage in named)


def _in_order(pieces: Sequence[Piece]) -> Fault | None:
    flat = [(i, j, stage) for i, piece in enumerate(pieces) for j, stage in enumerate(piece.stages)]
    there, wanted = [stage for _, _, stage in flat], _wanted(pieces)
    for at, (i, j, stage) in enumerate(flat):
        if stage in there[:at]:
            wrong = f"{stage} is here a second time, and each stage has one place"
            return Fault(f"{wrong}{_meant(pieces)}", i, j)
        due = wanted[at]
        if stage != due and due in there:
            wrong = f"{stage} stands before {due}, and the order is {', '.join(wanted)}"
            return Fault(f"{wrong}{_meant(pieces)}", i, j)
        if stage != due:
            lost = [name for name in wanted[at : wanted.index(stage)] if name not in there]
            return Fault(f"{_missing(lost)} before {stage}{_meant(pieces)}", i, j)
    if len(flat) < len(wanted):
        wrong = f"{_missing(wanted[len(flat) :])} at the end"
        return Fault(f"{wrong}{_meant(pieces)}", len(pieces))
    return None


def _missing(stages: Sequence[str]) -> str:
    return f"{join_words(stages, 'and')} {'is' if len(stages) == 1 else 'are'} missing"


def _meant(pieces: Sequence[Piece]) -> str:
    """The plan that was probably meant: each stage once, in order, cut where these pieces are."""
    first: dict[str, int] = {}
    for i, piece in enumerate(pieces):
        for stage in piece.stages:
            first.setdefault(stage, i)
    # A missing stage joins the one behind it; those missing at the end are a piece of their own.
    home, homes = len(pieces), {}
    wanted = _wanted(pieces)
    for stage in reversed(wanted):
        home = homes[stage] = first.get(stage, home)
    counts = [*pieces, Piece(())]
    parts = [(counts[i], tuple(group)) for i, group in groupby(wanted, homes.__getitem__)]
    meant = [piece._replace(stages=stages) for piece, stages in parts]
    return "." if first_fault(meant) else f"; `{write(meant).text}` would work."


def _counted(pieces: Sequence[Piece]) -> Fault | None:
    for i, piece in enumerate(pieces):
        if not piece.stages:
            return Fault("A piece without stages can do nothing; leave it out.", i)
        if not is_whole(piece.copies) or piece.copies < 1:
            wrong = f"{piece.copies!r} copies of {piece.name} can't run"
            return Fault(f"{wrong}: a whole number, 1 or more, would work.", i)
    return None


def _ranged(pieces: Sequence[Piece]) -> Fault | None:
    """Copies that only act may be more or fewer: each does its own lanes, whoever else does his."""
    for i, piece in enumerate(pieces):
        if piece.least is None:
            continue
        if not is_whole(piece.least) or not 1 <= piece.least <= piece.copies:
            wrong = f"{piece.least!r}..{piece.copies} is no range of copies"
            return Fault(f"{wrong}: from 1 or more up, as in `*4..16`, would work.", i)
        if any(stage not in ("env", "policy") for stage in piece.stages):
            wrong = f"How many copies of {piece.name} there are changes what is learned, so it is"
            if piece.stages == ("label",):
                wrong = "How many copies of label there are is"
            return Fault(
                f"{wrong} a number; a range is of pieces that only act: `actor*4..16 | learner` "
                "would work.",
                i,
            )
    return None


def is_whole(number: object) -> bool:
    """Is it a whole number, and not True or False?"""
    return isinstance(number, int) and not isinstance(number, bool)


def _one_update(pieces: Sequence[Piece]) -> Fault | None:
    last = pieces[-1]
    if "gradient" in last.stages or last.copies == 1:
        return None
    once = [*pieces[:-1], last._replace(copies=1)]
    joined = [*pieces[:-2], Piece((*pieces[-2].stages, *last.stages), last.copies)]
    work = [f"`{write(way).text}`" for way in (once, joined) if not first_fault(way)]
    return Fault(
        f"{last} apart from gradient would break norms and counters: it takes the mean of all "
        f"gradients, so there is one of it; {join_words(work or [last.name], 'or')} would work.",
        len(pieces) - 1,
    )


def _divisible(pieces: Sequence[Piece]) -> Fault | None:
    """Or else what the copies of one piece make could not be dealt out evenly to the next."""
    pairs = _exchanges(pieces)
    for first, i in pairs:
        one, two = pieces[first], pieces[i]
        if one.least is not None or two.least is not None:
            continue  # a number that fits is chosen when it starts
        if not _divide(one.copies, two.copies):
            beside = [pieces[a + b - i].copies for a, b in pairs if i in (a, b)]
            around = range(max(1, two.copies - 99), two.copies + 99)
            numbers = {1, one.copies, 2 * one.copies, *around}
            fits = [n for n in numbers if all(_divide(n, other) for other in beside)]
            near = [two._replace(copies=n) for n in nearest(fits, two.copies, most=2)]
            wrong = f"{one} can't be dealt out evenly to {two}: one number must divide the other"
            return Fault(f"{wrong}; {join_words(near, 'or')} would work.", i)
    return None


def _exchanges(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """The pairs of pieces that hand something over; past a label, feedback goes back to memory."""
    past = [(i - 1, i + 1) for i, piece in enumerate(pieces) if piece.stages == ("label",)]
    return [*pairwise(range(len(pieces))), *past]


def _divide(one: int, two: int) -> bool:
    return one % two == 0 or two % one == 0
