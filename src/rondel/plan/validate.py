"""Does a plan fit a run: its lanes, its blocks, what its algorithm tolerates?"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from typing import NamedTuple

from rondel.errors import RondelError
from rondel.plan.diagnostics import divisors, error_at, join_words, nearest, plural
from rondel.plan.pieces import Piece, write
from rondel.plan.plan import Plan
from rondel.plan.rules import first_fault


def check(
    plan: Plan,
    *,
    lanes: int,
    block: int,
    max_lag: int | None,
    algorithm: str = "this algorithm",
    labels: bool = True,
) -> None:
    """Refuse a plan that can't run, with a sentence of what would work.

    `max_lag` is the algorithm's: how many rounds old the weights may be that acted; None: any.
    `labels` says whether it has the stage `label`.
    """
    shares = (_lanes_fault(plan, index, lanes, block) for index in range(len(plan.pieces)))
    faults = [
        next(filter(None, shares), None),
        _lag_fault(plan.lag, max_lag, algorithm),
        _free_fault(plan, max_lag, algorithm) if plan.free else None,
        None if labels else _label_fault(plan, algorithm),
    ]
    found = [fault for fault in faults if fault]
    if found:
        raise _refusal(plan, found)


def resolve_ranges(plan: Plan, *, lanes: int, block: int, room: int | None = None) -> Plan:
    """The plan with numbers in place of its ranges: the most copies that can share the lanes.

    Where there is `room` for so many copies, no more. Without it a range stays one, from its least
    to the most that can be: who carries it out will see what there is room for.
    """
    pieces = list(plan.pieces)
    for i, piece in enumerate(pieces):
        if piece.least is None:
            continue
        some = Plan(tuple(pieces), plan.lag, plan.free)
        fits = [n for n in _numbers(some, i, lanes, block) if piece.least <= n <= piece.copies]
        if not fits:
            raise _refusal(plan, [_range_fault(some, i, lanes, block)])
        most = max((n for n in fits if room is None or n <= room), default=fits[0])
        pieces[i] = Piece(piece.stages, most, piece.least if room is None else None)
    return Plan(tuple(pieces), plan.lag, plan.free)


def _range_fault(plan: Plan, index: int, lanes: int, block: int) -> Fault:
    piece, numbers = plan.pieces[index], _numbers(plan, index, lanes, block)
    blocks = f" in blocks of {block}" if "policy" in piece.stages else ""
    wrong = f"No number of copies in {piece} can share {lanes} lanes{blocks} evenly"
    least = piece.least or 1
    near = (
        f"{piece.name}*{join_words(nearest(numbers, least), 'or')}" if numbers else "another plan"
    )
    more = least * _unit(Piece(piece.stages), block)
    if block != lanes and least in _numbers(plan, index, more, block):
        near += f", or --lanes {more},"
    return Fault(f"{wrong}; {near} would work.", index)


class Fault(NamedTuple):
    """Why a plan can't run."""

    sentence: str
    piece: int | None = None  # the one that it is about


def _refusal(plan: Plan, faults: Sequence[Fault]) -> RondelError:
    """All that is wrong at once, with the first piece at fault pointed at."""
    text = " Besides, ".join(fault.sentence for fault in faults)
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
        wrong = f"{piece} can't share {lanes} lanes{blocks} evenly"
    else:
        wrong = f"{piece} has {share} lanes a copy, which is no whole number of blocks of {block}"

    ways = []
    fits = _numbers(plan, index, lanes, block)
    if fits:
        copies = "copy" if fits[-1] == 1 else "copies"
        ways.append(f"{join_words(nearest(fits, piece.copies), 'or')} {copies}")
    if not left:
        ways.append(f"--block {max(n for n in divisors(share) if n <= block)}")
    whole = lcm(*(_unit(piece, block) for piece in plan.pieces))
    ways.append(f"--lanes {-(-lanes // whole) * whole}")
    work = f"{', or '.join(ways)}{',' if len(ways) > 1 else ''} would work"
    return Fault(f"{wrong}; {work}.", index)


def _unit(piece: Piece, block: int) -> int:
    """The lanes must be a multiple of it: an even share for each copy, of blocks if it acts."""
    if "policy" in piece.stages:
        return piece.copies * block
    return piece.copies if "env" in piece.stages or "memory" in piece.stages else 1


def _numbers(plan: Plan, index: int, lanes: int, block: int) -> list[int]:
    """How many copies of a piece there could be."""
    stages = plan.pieces[index].stages
    fits = [n for n in divisors(lanes) if lanes % _unit(Piece(stages, n), block) == 0]
    return [n for n in fits if not first_fault(_with_copies(plan, index, n))]


def _with_copies(plan: Plan, index: int, copies: int) -> list[Piece]:
    pieces = list(plan.pieces)
    pieces[index] = Piece(pieces[index].stages, copies)
    return pieces


def _lag_fault(lag: int, max_lag: int | None, algorithm: str) -> Fault | None:
    if max_lag is None or lag <= max_lag:
        return None
    if max_lag == 0:
        why = f"{algorithm} learns from what the newest policy did"
    else:
        why = f"{algorithm} takes weights that are a little old, not any"
    return Fault(
        f"{why}, so its weights may be at most {plural(max_lag, 'round')} old, and the plan's lag "
        f"is {lag}; --lag {max_lag}, or an algorithm that corrects for it, would work."
    )


def _label_fault(plan: Plan, algorithm: str) -> Fault | None:
    """A copy of a stage that does nothing would only cost time."""
    piece = plan.piece_of("label")
    if "label" not in piece.stages:
        return None
    rest = [
        each._replace(stages=tuple(stage for stage in each.stages if stage != "label"))
        for each in plan.pieces
    ]
    rest = [each for each in rest if each.stages]
    work = "`all`" if first_fault(rest) else f"`{write(rest).text}`"
    wrong = f"{algorithm} has no stage `label`: it makes its targets with its gradients"
    return Fault(f"{wrong}; {work} would work.", plan.pieces.index(piece))


def _free_fault(plan: Plan, max_lag: int | None, algorithm: str) -> Fault | None:
    """Where one piece acts and updates, it waits for itself, and there is nothing to free."""
    piece = plan.piece_of("policy")
    index = plan.pieces.index(piece)
    if "update" in piece.stages:
        behind = piece.stages.index("policy") + 1
        acting, learning = Piece(piece.stages[:behind], piece.copies), Piece(piece.stages[behind:])
        cut = write((*plan.pieces[:index], acting, learning)).text
        return Fault(
            f"--free has nothing to overlap here: {piece.name} acts and updates, one after the "
            f"other; `{cut}`, or this plan without --free, would work.",
            index,
        )
    if piece.copies == 1:
        return None
    if "gradient" in piece.stages and max_lag is not None and plan.lag >= max_lag:
        return Fault(  # free copies that make their own gradients are up to a round apart
            f"{algorithm} takes weights that are at most {plural(max_lag, 'round')} old, and free "
            f"copies that make their own gradients can be almost {plural(plan.lag + 1, 'round')} "
            "behind; this plan without --free would work.",
            index,
        )
    if "memory" in piece.stages and "gradient" not in piece.stages:
        return Fault(
            f"In {piece.name} each copy keeps its own items, and a free round may take two rounds "
            "of one copy and none of another; a cut between policy and memory, or this plan "
            "without --free, would work.",
            index,
        )
    return None
