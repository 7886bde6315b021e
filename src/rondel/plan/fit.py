"""Does a plan fit a run: its lanes, its blocks, what its algorithm tolerates?"""

from __future__ import annotations

from math import lcm

from rondel.errors import RondelError
from rondel.plan.pieces import Piece, write
from rondel.plan.plan import Plan
from rondel.plan.pointing import divisors, listed, nearest, pointed
from rondel.plan.rules import first_fault


def check(
    plan: Plan,
    *,
    lanes: int,
    block: int,
    max_lag: int | None,
    algorithm: str = "this algorithm",
) -> None:
    """Refuse a plan that can't run, with a sentence of what would work.

    `max_lag` is the algorithm's: how many rounds old the weights may be that acted; None: any.
    """
    for index in range(len(plan.pieces)):
        _check_lanes(plan, index, lanes, block)
    _check_lag(plan.lag, max_lag, algorithm)
    if plan.free:
        _check_free(plan, max_lag, algorithm)


def _check_lanes(plan: Plan, index: int, lanes: int, block: int) -> None:
    piece = plan.pieces[index]
    if lanes % _unit(piece, block) == 0:
        return
    share, left = divmod(lanes, piece.copies)
    if left:
        blocks = f" in blocks of {block}" if "policy" in piece.stages else ""
        wrong = f"{piece} can't share {lanes} lanes{blocks} evenly"
    else:
        wrong = f"{piece} has {share} lanes a copy, which is no whole number of blocks of {block}"

    ways = []
    fits = [n for n in divisors(lanes) if lanes % _unit(Piece(piece.stages, n), block) == 0]
    fits = [n for n in fits if not first_fault(_with_copies(plan, index, n))]
    if fits:
        ways.append(
            f"{listed(nearest(fits, piece.copies), 'or')} {_many('copy', 'copies', fits[-1])}"
        )
    if not left:
        ways.append(f"--block {max(n for n in divisors(share) if n <= block)}")
    whole = lcm(*(_unit(piece, block) for piece in plan.pieces))
    ways.append(f"--lanes {-(-lanes // whole) * whole}")
    work = f"{', or '.join(ways)}{',' if len(ways) > 1 else ''} would work"
    raise _pointed_at(plan, index, f"{wrong}; {work}.")


def _unit(piece: Piece, block: int) -> int:
    """The lanes must be a multiple of it: an even share for each copy, of blocks if it acts."""
    if "policy" in piece.stages:
        return piece.copies * block
    return piece.copies if "env" in piece.stages or "memory" in piece.stages else 1


def _with_copies(plan: Plan, index: int, copies: int) -> list[Piece]:
    pieces = list(plan.pieces)
    pieces[index] = pieces[index]._replace(copies=copies)
    return pieces


def _check_lag(lag: int, max_lag: int | None, algorithm: str) -> None:
    if max_lag is None or lag <= max_lag:
        return
    if max_lag == 0:
        why = f"{algorithm} learns from what the newest policy did"
    else:
        why = f"{algorithm} corrects for weights that are a little old, not for any"
    rounds = _many("round", "rounds", max_lag)
    raise RondelError(
        f"{why}, so its weights may be at most {max_lag} {rounds} old, and the plan's lag is "
        f"{lag}; --lag {max_lag}, or an algorithm that corrects for it, would work."
    )


def _check_free(plan: Plan, max_lag: int | None, algorithm: str) -> None:
    """Where one piece acts and updates, it waits for itself, and there is nothing to free."""
    piece = plan.piece_of("policy")
    index = plan.pieces.index(piece)
    if "update" not in piece.stages:
        if "gradient" in piece.stages and max_lag is not None and plan.lag >= max_lag:
            _refuse_own_gradients(plan, index, max_lag, algorithm)
        if "memory" in piece.stages and "gradient" not in piece.stages and piece.copies > 1:
            raise _pointed_at(
                plan,
                index,
                f"In {piece.name} each copy keeps its own items, and a free round may take two "
                "rounds of one copy and none of another; a cut between policy and memory, or this "
                "plan without --free, would work.",
            )
        return
    behind = piece.stages.index("policy") + 1
    acting, learning = Piece(piece.stages[:behind], piece.copies), Piece(piece.stages[behind:])
    cut = write((*plan.pieces[:index], acting, learning)).text
    raise _pointed_at(
        plan,
        index,
        f"--free has nothing to overlap here: {piece.name} acts and updates, one after the other; "
        f"`{cut}`, or this plan without --free, would work.",
    )


def _refuse_own_gradients(plan: Plan, index: int, max_lag: int, algorithm: str) -> None:
    """Free copies that make their own gradients are up to a round apart, whatever the lag."""
    if plan.pieces[index].copies > 1:
        raise _pointed_at(
            plan,
            index,
            f"{algorithm} takes weights that are at most {max_lag} rounds old, and free copies "
            f"that make their own gradients can be almost {plan.lag + 1} rounds behind; this plan "
            "without --free would work.",
        )


def _pointed_at(plan: Plan, index: int, sentence: str) -> RondelError:
    written = write(plan.pieces)
    place = written.stages[index][0][0], written.copies[index][1]
    return pointed(sentence, written.text, place)


def _many(one: str, more: str, number: int) -> str:
    return one if number == 1 else more
