"""A plan as a value: it is legal, or it can't be made."""

from __future__ import annotations

from dataclasses import dataclass

from rondel.errors import RondelError
from rondel.plan.diagnostics import closest_words
from rondel.plan.pieces import OPTIONAL, ORDER, Piece, write
from rondel.plan.rules import check_rules, first_fault, is_whole

MOST_LAG = 1_000


@dataclass(frozen=True)
class Plan:
    """Where the ring is cut, how many copies of each piece run, and how late they may be.

    >>> Plan((Piece(("env", "policy"), 8), Piece(("memory", "gradient", "update"))), lag=1)
    """

    pieces: tuple[Piece, ...]  # in the order of the ring
    lag: int = 0  # k: round r acts with the weights of version max(0, r - k)
    free: bool = False  # results in the order in which they arrive; then the lag is a bound

    def __post_init__(self) -> None:
        if not self.pieces:
            raise RondelError("The plan is empty; `all` would work, or `actor*4 | learner`.")
        if any(isinstance(piece.stages, str) for piece in self.pieces):
            raise RondelError("A piece's stages are a tuple of names: Piece(('env',)) would work.")
        pieces = tuple(piece._replace(stages=tuple(piece.stages)) for piece in self.pieces)
        object.__setattr__(self, "pieces", pieces)  # lists would be no value: they can't be hashed
        fault = first_fault(pieces)
        if fault:
            raise check_rules(fault, write(pieces))
        if not is_whole(self.lag) or self.lag < 0:
            raise RondelError(f"lag={self.lag!r} can't work: a whole number, 0 or more, would.")
        if self.lag > MOST_LAG:  # each of these rounds is kept until it is learned from
            raise RondelError(f"lag={self.lag:.3g} can't work: {MOST_LAG} rounds are the most.")

    @property
    def cut(self) -> bool:
        """Is there more than one process's worth of it: several pieces, or copies?"""
        return len(self.pieces) > 1 or self.pieces[0].copies > 1

    @property
    def ranged(self) -> bool:
        """Does a piece have a range of copies in place of a number?"""
        return any(piece.least is not None for piece in self.pieces)

    def piece_of(self, stage: str) -> Piece:
        """The piece that holds a stage, or does its work where the plan does not name it."""
        for piece in self.pieces:
            if stage in piece.stages:
                return piece
        if stage in OPTIONAL:
            return self.piece_of(OPTIONAL[stage])
        near = closest_words(stage, ORDER)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(ORDER)}."
        raise RondelError(f"There is no stage named {stage!r}; {hint}")

    def copies(self, stage: str) -> int:
        """How many copies of a stage run; of a range, the most."""
        return self.piece_of(stage).copies

    def __str__(self) -> str:
        """The pieces, without lag and free: "actor*8 | learner"."""
        return write(self.pieces).text
