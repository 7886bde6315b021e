"""A plan as a value, legal by construction, and the relations between its copies."""

from __future__ import annotations

from dataclasses import dataclass

from rondel.errors import RondelError
from rondel.formatting import closest_words
from rondel.plan.pieces import OPTIONAL, ORDER, Piece, write
from rondel.plan.rules import fault_error, first_fault, is_whole

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
