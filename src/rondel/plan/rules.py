"""What plans must obey: the six rules of a legal plan, and what a run asks of it.

All 16 ways to cut the ring are legal, and so are the cuts around `label`, which a plan may name or
not. The rules refuse stages that are unknown, missing, repeated or out of order, and numbers of
copies that cannot share the work. `check_fit` compares a legal plan with the lanes, the block and
the algorithm of a run. Every error says what to use instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from math import lcm
from typing import TYPE_CHECKING, NamedTuple

from rondel.errors import RondelError
from rondel.formatting import closest_words, divisors, join_words, nearest, plural
from rondel.plan.pieces import ALIASES, ORDER, STAGES, Piece, Place, Written, error_at, write
from rondel.plan.presets import PRESETS

if TYPE_CHECKING:
    from rondel.plan.plan import Plan


class Fault(NamedTuple):
    """A broken rule, and where: at a stage, or in the number of copies of a piece."""

    sentence: str
    piece: int | None = None  # the number of pieces: after the last one; None: in no piece
    stage: int | None = None  # of the piece; None: its number of copies


def first_fault(pieces: Sequence[Piece]) -> Fault | None:
    """The first rule that these pieces break, if any."""
    for rule in (_known, _in_order, _counted, _ranged, _one_update, _divisible):
        fault = rule(pieces)
        if fault:
            return fault
    return None


def fault_error(fault: Fault, written: Written) -> RondelError:
    """The error for a fault, with carets below it."""
    return error_at(fault.sentence, written.text, _place(fault, written))


def _place(fault: Fault, written: Written) -> Place:
    if fault.piece is None or fault.piece == len(written.stages):
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


def check_fit(
    plan: Plan,
    *,
    lanes: int,
    block: int,
    max_lag: int | None,
    algorithm: str = "this algorithm",
    labels: bool = True,
) -> None:
    """Refuse a plan that cannot run, and suggest what to use.

    `max_lag` is the largest lag that the algorithm tolerates; None: any. `labels` says whether it
    has the stage `label`.
    """
    shares = (_lanes_fault(plan, index, lanes, block) for index in range(len(plan.pieces)))
    faults = [
        next(filter(None, shares), None),
        _lag_fault(plan, max_lag, algorithm),
        _free_fault(plan, max_lag, algorithm) if plan.free else None,
        None if labels else _label_fault(plan, algorithm),
    ]
    found = [fault for fault in faults if fault]
    if found:
        raise _refusal(plan, found)


def resolve_ranges(plan: Plan, *, lanes: int, block: int, cores: int | None = None) -> Plan:
    """Replace ranges by numbers: the most copies that can share the lanes, at most `cores`.

    Without `cores` a range stays a range, up to that number: the backend fits it to its nodes.
    """
    pieces = list(plan.pieces)
    for i, piece in enumerate(pieces):
        if piece.least is None:
            continue
        some = replace(plan, pieces=tuple(pieces))
        fits = [n for n in _numbers(some, i, lanes, block) if piece.least <= n <= piece.copies]
        if not fits:
            raise _refusal(plan, [_range_fault(some, i, lanes, block)])
        most = max((n for n in fits if cores is None or n <= cores), default=fits[0])
        pieces[i] = Piece(piece.stages, most, piece.least if cores is None else None)
    return replace(plan, pieces=tuple(pieces))


def _range_fault(plan: Plan, index: int, lanes: int, block: int) -> Fault:
    piece, numbers = plan.pieces[index], _numbers(plan, index, lanes, block)
    blocks = f" in blocks of {block}" if "policy" in piece.stages else ""
    wrong = f"No number of copies in {piece} can share {lanes} lanes{blocks} evenly"
    least = piece.least or 1
    near = join_words(nearest(numbers, least), "or") if numbers else ""
    ways = [f"{piece.name}*{near}" if near else "another plan"]
    more = least * _unit(Piece(piece.stages), block)
    if block != lanes and least in _numbers(plan, index, more, block):
        ways.append(f"--lanes {more}")
    return Fault(f"{wrong}. Use {', or '.join(ways)}.", index)


def _refusal(plan: Plan, faults: Sequence[Fault]) -> RondelError:
    """One error for all faults, with carets below the first piece at fault."""
    text = " ".join(fault.sentence for fault in faults)
    pieces = [fault.piece for fault in faults if fault.piece is not None]
    if not pieces:
        return RondelError(text)
    written = write(plan.pieces)
    place = written.stages[pieces[0]][0][0], written.copies[pieces[0]][1]
    return error_at(text, written.text, place)


def _lanes_fault(plan: Plan, index: int, lanes: int, block: int) -> Fault | None:
    piece = plan.pieces[index]
    if lanes % _unit(piece, block) == 0:
        return None
    share, left = divmod(lanes, piece.copies)
    if left:
        blocks = f" in blocks of {block}" if "policy" in piece.stages else ""
        wrong = f"{piece} cannot share {lanes} lanes{blocks} evenly"
    else:
        wrong = (
            f"{piece} has {share} lanes per copy, which must be a multiple of the block, {block}"
        )

    ways = []
    fits = _numbers(plan, index, lanes, block)
    if fits:
        copies = "copy" if fits[-1] == 1 else "copies"
        ways.append(f"{join_words(nearest(fits, piece.copies), 'or')} {copies}")
    if not left:
        ways.append(f"--block {max(n for n in divisors(share) if n <= block)}")
    whole = lcm(*(_unit(piece, block) for piece in plan.pieces))
    ways.append(f"--lanes {-(-lanes // whole) * whole}")
    return Fault(f"{wrong}. Use {', or '.join(ways)}.", index)


def _unit(piece: Piece, block: int) -> int:
    """The number that must divide the lanes: copies get equal shares, in blocks if they act."""
    if "policy" in piece.stages:
        return piece.copies * block
    return piece.copies if "env" in piece.stages or "memory" in piece.stages else 1


def _numbers(plan: Plan, index: int, lanes: int, block: int) -> list[int]:
    """The possible numbers of copies of a piece."""
    stages = plan.pieces[index].stages
    fits = [n for n in divisors(lanes) if lanes % _unit(Piece(stages, n), block) == 0]
    return [n for n in fits if not first_fault(_with_copies(plan, index, n))]


def _with_copies(plan: Plan, index: int, copies: int) -> list[Piece]:
    pieces = list(plan.pieces)
    pieces[index] = Piece(pieces[index].stages, copies)
    return pieces


def _lag_fault(plan: Plan, max_lag: int | None, algorithm: str) -> Fault | None:
    if max_lag is None or plan.lag <= max_lag:
        return None
    most = f"at most {max_lag}" if max_lag else "0"
    use = f"--lag {max_lag}{' --no-free' if plan.free and not max_lag else ''}"
    return Fault(
        f"The lag of {algorithm} must be {most}, got {plan.lag}. Use {use}, or an algorithm that "
        "corrects for lag (`rondel list algorithms`)."
    )


def _label_fault(plan: Plan, algorithm: str) -> Fault | None:
    piece = plan.piece_of("label")
    if "label" not in piece.stages:
        return None
    rest = [
        each._replace(stages=tuple(stage for stage in each.stages if stage != "label"))
        for each in plan.pieces
    ]
    rest = [each for each in rest if each.stages]
    work = "`all`" if first_fault(rest) else f"`{write(rest).text}`"
    wrong = f"{algorithm} has no stage `label`: it computes targets with its gradients"
    return Fault(f"{wrong}. Use {work}.", plan.pieces.index(piece))


def _free_fault(plan: Plan, max_lag: int | None, algorithm: str) -> Fault | None:
    """Refuse --free where nothing overlaps or the bound on the lag cannot be kept."""
    piece = plan.piece_of("policy")
    index = plan.pieces.index(piece)
    if "update" in piece.stages:
        behind = piece.stages.index("policy") + 1
        acting, learning = Piece(piece.stages[:behind], piece.copies), Piece(piece.stages[behind:])
        cut = write((*plan.pieces[:index], acting, learning)).text
        return Fault(
            f"--free gains nothing where one piece acts and updates, here {piece.name}. "
            f"Use `{cut}`, or leave --free out.",
            index,
        )
    # gradients made by the acting copies arrive one by one, and a range needs --free on Ray
    if plan.lag == 0 and "gradient" not in piece.stages and not plan.ranged:
        what = f"{algorithm} must learn with lag 0" if max_lag == 0 else "the lag is 0"
        use = "Leave --free out" if max_lag == 0 else "Use --lag 1, or leave --free out"
        return Fault(f"--free gains nothing where {what}: actors wait for the learner. {use}.")
    if piece.copies == 1:
        return None
    if "gradient" in piece.stages and max_lag is not None and plan.lag >= max_lag:
        return Fault(  # free copies that make their own gradients are up to a round apart
            f"{algorithm} tolerates a lag of {max_lag}, but free copies with their own gradients "
            f"can be almost {plural(plan.lag + 1, 'round')} behind. Leave --free out.",
            index,
        )
    if "memory" in piece.stages and "gradient" not in piece.stages:
        return Fault(
            f"Each copy of {piece.name} stores its own items, but a free round may take two "
            "rollouts of one copy and none of another. Cut between policy and memory, or leave "
            "--free out.",
            index,
        )
    return None
