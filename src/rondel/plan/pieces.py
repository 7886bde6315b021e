"""The stages of the ring, the pieces that a plan cuts it into, and their text form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from rondel.errors import RondelError

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
