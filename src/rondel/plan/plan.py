"""A plan as a value, legal by construction; the relations between its copies; its fit with a run.

Every error says what to use instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm

from rondel.errors import RondelError
from rondel.formatting import closest_words, divisors, join_words, nearest, plural
from rondel.plan.pieces import (
    OPTIONAL,
    ORDER,
    Fault,
    Piece,
    error_at,
    fault_error,
    first_fault,
    is_whole,
    write,
)

MOST_LAG = 1_000


@dataclass(frozen=True)
class Plan:
    """Where the ring is cut, the copies of each piece, and the lag of the acting weights.

    >>> Plan((Piece(("env", "policy"), 8), Piece(("memory", "gradient", "update"))), lag=1)
    """

    pieces: tuple[Piece, ...]  # in the order of the ring
    lag: int = 0  # k: round r acts with the weights of version max(0, r - k)
    free: bool = False  # results in the order in which they arrive; then the lag is a bound

    def __post_init__(self) -> None:
        if not self.pieces:
            raise RondelError("The plan is empty. Use `all`, or cut it: `actor*4 | learner`.")
        if any(isinstance(piece.stages, str) for piece in self.pieces):
            raise RondelError("A piece's stages must be a tuple of names: Piece(('env',)).")
        pieces = tuple(piece._replace(stages=tuple(piece.stages)) for piece in self.pieces)
        object.__setattr__(self, "pieces", pieces)  # lists cannot be hashed
        fault = first_fault(pieces)
        if fault:
            raise fault_error(fault, write(pieces))
        # each of the lag's rounds is kept until it is learned from
        if not is_whole(self.lag) or not 0 <= self.lag <= MOST_LAG:
            raise RondelError(
                f"lag must be an integer from 0 to {MOST_LAG:,}, got {self.lag!r:.40}."
            )

    @property
    def cut(self) -> bool:
        """Does it have several pieces or copies?"""
        return len(self.pieces) > 1 or self.pieces[0].copies > 1

    @property
    def ranged(self) -> bool:
        """Does a piece have a range of copies?"""
        return any(piece.least is not None for piece in self.pieces)

    def piece_of(self, stage: str) -> Piece:
        """The piece that has a stage, or includes an optional one."""
        for piece in self.pieces:
            if stage in piece.stages:
                return piece
        if stage in OPTIONAL:
            return self.piece_of(OPTIONAL[stage])
        near = closest_words(stage, ORDER)
        hint = f"Did you mean {near}?" if near else f"Stages: {', '.join(ORDER)}."
        raise RondelError(f"Unknown stage {stage!r}. {hint}")

    def copies(self, stage: str) -> int:
        """The number of copies of a stage; of a range, the most."""
        return self.piece_of(stage).copies

    def __str__(self) -> str:
        """The pieces, without lag and free: "actor*8 | learner"."""
        return write(self.pieces).text


def copy_name(plan: Plan, piece: int, copy: int) -> str:
    """The name of a copy in messages: "actor 2 of 4"."""
    which = plan.pieces[piece]
    return which.name if which.copies == 1 else f"{which.name} {copy + 1} of {which.copies}"


def has_separate_envs(plan: Plan) -> bool:
    """Are env and policy in different pieces, joined by links?"""
    return plan.piece_of("env") != plan.piece_of("policy")


def env_copies_of(plan: Plan, policy_copy: int) -> range:
    """The env copies that a policy copy drives."""
    envs, policies = plan.copies("env"), plan.copies("policy")
    if envs < policies:
        mine = policy_copy * envs // policies
        return range(mine, mine + 1)
    each = envs // policies
    return range(policy_copy * each, (policy_copy + 1) * each)


def failure_units(plan: Plan) -> list[list[tuple[int, int]]]:
    """Copies that fail and restart together, as (piece, copy): policies and their envs."""
    rest = [
        (piece, copy)
        for piece, (stages, copies, _) in enumerate(plan.pieces)
        for copy in range(copies)
        if not has_separate_envs(plan) or ("env" not in stages and "policy" not in stages)
    ]
    if not has_separate_envs(plan):
        return [[place] for place in rest]
    policy = plan.pieces.index(plan.piece_of("policy"))
    envs, policies = plan.copies("env"), plan.copies("policy")
    n = min(envs, policies)  # one of the two numbers divides the other
    together = [
        [(0, e) for e in range(i * envs // n, (i + 1) * envs // n)]
        + [(policy, p) for p in range(i * policies // n, (i + 1) * policies // n)]
        for i in range(n)
    ]
    return together + [[place] for place in rest]


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
        raise refusal(plan, found)


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
            raise refusal(plan, [_range_fault(some, i, lanes, block)])
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


def refusal(plan: Plan, faults: Sequence[Fault]) -> RondelError:
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
    before, after = plan.pieces[:index], plan.pieces[index + 1 :]
    fits = [n for n in divisors(lanes) if lanes % _unit(Piece(stages, n), block) == 0]
    return [n for n in fits if not first_fault((*before, Piece(stages, n), *after))]


def _lag_fault(plan: Plan, max_lag: int | None, algorithm: str) -> Fault | None:
    if max_lag is None or plan.lag <= max_lag:
        return None
    most = f"at most {max_lag}" if max_lag else "0"
    use = f"--lag {max_lag}{' --no-free' if plan.free and not max_lag else ''}"
    own = ":" in algorithm  # module:function
    other = (
        "set max_lag in the Algorithm that it returns"
        if own
        else "an algorithm that corrects for lag (`rondel list algorithms`)"
    )
    return Fault(f"The lag of {algorithm} must be {most}, got {plan.lag}. Use {use}, or {other}.")


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
