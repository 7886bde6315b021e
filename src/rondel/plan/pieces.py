"""The stages of the ring, the pieces that a plan cuts it into, and the six rules that these obey.

All 16 ways to cut the ring are legal, and so are the cuts around `label`, which a plan may name or
not. The rules refuse stages that are unknown, missing, repeated or out of order, and numbers of
copies that cannot share the work. Whether a legal plan suits a run is a question of `check_fit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple, TypeAlias

from rondel.errors import RondelError
from rondel.formatting import closest_words, join_words, nearest
from rondel.plan.presets import PRESETS

Place: TypeAlias = tuple[int, int]  # of a text: start, end

STAGES = ("env", "policy", "memory", "gradient", "update")
"""Those of every plan, in the order of the ring; update's weights go round to policy."""

OPTIONAL = {"label": "gradient"}
"""Stages that only some algorithms have, and the stage that includes each in other plans."""

ORDER = ("env", "policy", "memory", "label", "gradient", "update")
"""All stages, in the order of the ring."""

ALIASES = {"all": STAGES, "learner": STAGES[2:], "actor": STAGES[:2]}
"""Names for the usual pieces, the longest first."""

AUTO = 1_000_000
"""Copies of `actor*auto`: as many as there are lanes and cores for."""


class Piece(NamedTuple):
    """Neighbouring stages that run together, and how many copies of them there are."""

    stages: tuple[str, ...]
    copies: int = 1
    least: int | None = None  # of a range, `actor*4..16`

    @property
    def name(self) -> str:
        """The stages in short, without copies: "actor+memory", "policy+learner", "all"."""
        return "+".join(word for word, _ in words_of(self.stages))

    @property
    def number(self) -> str:
        """How many copies, as it is written: "4", "4..16", "auto"."""
        if self.least is None:
            return str(self.copies)
        return "auto" if (self.least, self.copies) == (1, AUTO) else f"{self.least}..{self.copies}"

    def __str__(self) -> str:
        return self.name if self.number == "1" else f"{self.name}*{self.number}"


def words_of(stages: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The fewest words for some stages, each with the number of stages it covers."""
    at = 0
    while at < len(stages):
        word, length = stages[at], 1
        for alias, meaning in ALIASES.items():
            if tuple(stages[at : at + len(meaning)]) == meaning:
                word, length = alias, len(meaning)
                break
        yield word, length
        at += length


class Written(NamedTuple):
    """A plan's text, with the place of each stage and each number of copies."""

    text: str
    stages: list[list[Place]]  # of each piece
    copies: list[Place]


def write(pieces: Sequence[Piece]) -> Written:
    """The pieces as text, which parses back to them if they obey the rules."""
    text = ""
    stages: list[list[Place]] = []
    copies: list[Place] = []
    for piece in pieces:
        text += " | " if stages else ""
        places: list[Place] = []
        for word, length in words_of(piece.stages):
            text += "+" if places else ""
            places += [(len(text), len(text) + len(word))] * length
            text += word
        start = len(text)
        text += str(piece)[len(piece.name) :]
        stages.append(places)
        copies.append((start, len(text)))
    return Written(text, stages, copies)


def error_at(sentence: str, text: str, place: Place) -> RondelError:
    """An error that shows the text below its sentence, with carets below the place."""
    start, end = place
    return RondelError(f"{sentence}\n  {text}\n  {' ' * start}{'^' * max(1, end - start)}")


class Fault(NamedTuple):
    """A broken rule, and where: at a stage, or in the number of copies of a piece."""

    sentence: str
    piece: int | None = None  # the number of pieces: after the last one; None: in no piece
    stage: int | None = None  # of the piece; None: its number of copies


def first_fault(pieces: Sequence[Piece]) -> Fault | None:
    """The first rule that these pieces break, if any."""
    rules = (_known, _in_order, _counted, _ranged, _one_update, _divisible)
    return next(filter(None, (rule(pieces) for rule in rules)), None)


def fault_error(fault: Fault, written: Written) -> RondelError:
    """The error for a fault, with carets below it."""
    if fault.piece is None or fault.piece == len(written.stages):
        place = len(written.text) + 1, len(written.text) + 2
    elif fault.stage is None:
        place = written.copies[fault.piece]
    else:
        place = written.stages[fault.piece][fault.stage]
    return error_at(fault.sentence, written.text, place)


def _known(pieces: Sequence[Piece]) -> Fault | None:
    alone = [len(piece.stages) for piece in pieces] == [1]
    for i, piece in enumerate(pieces):
        for j, stage in enumerate(piece.stages):
            if stage not in ORDER:
                return Fault(_unknown(stage, alone), i, j)
    return None


def _unknown(name: str, alone: bool) -> str:
    if name in ALIASES:  # from Python; the parser has replaced those of a text
        stages = ", ".join(map(repr, ALIASES[name]))
        return f"{name!r} is an alias; a Piece needs the names of its stages: ({stages})."
    if name in PRESETS:
        return f"{name} is a whole plan, `{PRESETS[name].text}`, and not a piece of one."
    what = "stage or plan" if alone else "stage"
    names = [*ORDER, *ALIASES, *(PRESETS if alone else ())]
    near = closest_words(name, names)
    hint = f"Did you mean {near}?" if near else f"Use {join_words(names, 'or')}."
    return f"Unknown {what} {name!r}. {hint}"


def _wanted(pieces: Sequence[Piece]) -> tuple[str, ...]:
    """The required stages in order: those of every plan, and optional ones that are named."""
    named = {stage for piece in pieces for stage in piece.stages}
    return tuple(stage for stage in ORDER if stage in STAGES or stage in named)


def _in_order(pieces: Sequence[Piece]) -> Fault | None:
    flat = [(i, j, stage) for i, piece in enumerate(pieces) for j, stage in enumerate(piece.stages)]
    there, wanted = [stage for _, _, stage in flat], _wanted(pieces)
    for at, (i, j, stage) in enumerate(flat):
        if stage in there[:at]:
            return Fault(f"{stage} is repeated{_meant(pieces)}", i, j)
        due = wanted[at]
        if stage != due and due in there:
            wrong = f"{stage} is before {due}, but the order is {', '.join(wanted)}"
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
    """Suggest the plan with each stage once, in order, cut where these pieces are."""
    first: dict[str, int] = {}
    for i, piece in enumerate(pieces):
        for stage in piece.stages:
            first.setdefault(stage, i)
    # a missing stage joins the one after it; those missing at the end are one more piece
    home, homes = len(pieces), {}
    wanted = _wanted(pieces)
    for stage in reversed(wanted):
        home = homes[stage] = first.get(stage, home)
    counts = [*pieces, Piece(())]
    parts = [(counts[i], tuple(group)) for i, group in groupby(wanted, homes.__getitem__)]
    meant = [piece._replace(stages=stages) for piece, stages in parts]
    return "." if first_fault(meant) else f". Did you mean `{write(meant).text}`?"


def _counted(pieces: Sequence[Piece]) -> Fault | None:
    for i, piece in enumerate(pieces):
        if not piece.stages:
            return Fault("A piece must have a stage.", i)
        if not is_whole(piece.copies) or piece.copies < 1:
            wanted = f"Copies of {piece.name} must be an integer, 1 or more"
            return Fault(f"{wanted}, got {piece.copies!r}.", i)
    return None


def _ranged(pieces: Sequence[Piece]) -> Fault | None:
    """Only the number of acting copies changes nothing that is learned: lanes stay the same."""
    for i, piece in enumerate(pieces):
        if piece.least is None:
            continue
        if not is_whole(piece.least) or not 1 <= piece.least <= piece.copies:
            wrong = f"got {piece.least!r}..{piece.copies}"
            return Fault(f"A range of copies must ascend from 1 or more, {wrong}.", i)
        if any(stage not in ("env", "policy") for stage in piece.stages):
            return Fault(
                f"{piece.name} needs a fixed number of copies. Only pieces that act take a range: "
                "`actor*4..16 | learner`.",
                i,
            )
    return None


def is_whole(number: object) -> bool:
    """Is it an integer, and not a bool?"""
    return isinstance(number, int) and not isinstance(number, bool)


def _one_update(pieces: Sequence[Piece]) -> Fault | None:
    last = pieces[-1]
    if "gradient" in last.stages or last.copies == 1:
        return None
    once = [*pieces[:-1], last._replace(copies=1)]
    joined = [*pieces[:-2], Piece((*pieces[-2].stages, *last.stages), last.copies)]
    work = [f"`{write(way).text}`" for way in (once, joined) if not first_fault(way)]
    return Fault(
        f"{last} must be one copy, as it takes the mean of all gradients. "
        f"Use {join_words(work or [last.name], 'or')}.",
        len(pieces) - 1,
    )


def _divisible(pieces: Sequence[Piece]) -> Fault | None:
    """Neighbouring pieces share their work evenly."""
    pairs = _exchanges(pieces)
    for first, i in pairs:
        one, two = pieces[first], pieces[i]
        if one.least is not None or two.least is not None:
            continue  # its number is chosen at the start of the run
        if not _divide(one.copies, two.copies):
            beside = [pieces[a + b - i].copies for a, b in pairs if i in (a, b)]
            around = range(max(1, two.copies - 99), two.copies + 99)
            numbers = {1, one.copies, 2 * one.copies, *around}
            fits = [n for n in numbers if all(_divide(n, other) for other in beside)]
            near = [two._replace(copies=n) for n in nearest(fits, two.copies, most=2)]
            wrong = f"One number of copies must divide the other, got {one} and {two}"
            return Fault(f"{wrong}. Use {join_words(near, 'or')}.", i)
    return None


def _exchanges(pieces: Sequence[Piece]) -> list[tuple[int, int]]:
    """The pairs of pieces that exchange data; feedback passes a label on its way to memory."""
    past = [(i - 1, i + 1) for i, piece in enumerate(pieces) if piece.stages == ("label",)]
    return [*pairwise(range(len(pieces))), *past]


def _divide(one: int, two: int) -> bool:
    return one % two == 0 or two % one == 0
