"""Tokens with their positions, errors with carets below them, and words for lists and counts."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from rondel.errors import RondelError

Place: TypeAlias = tuple[int, int]  # of a text: start, end
LONGEST = 1_000  # characters: an error shows the whole text


class Token(NamedTuple):
    """A word or a sign, and its position."""

    text: str
    start: int

    @property
    def place(self) -> Place:
        return self.start, self.start + len(self.text)


def one_line(text: str) -> str:
    """The text with every blank as one space, so that a position is a column."""
    if len(text) > LONGEST:
        raise RondelError(
            f"{text[:20]!r}… must have at most {LONGEST:,} characters, got {len(text):,}."
        )
    return re.sub(r"\s", " ", text).strip()


def tokens(text: str) -> list[Token]:
    """Words (letters, digits, `_`, `.`, `-`) and single signs."""
    return [Token(found.group(), found.start()) for found in re.finditer(r"[\w.-]+|\S", text)]


def is_word(token: Token) -> bool:
    return re.match(r"[\w.-]", token.text) is not None


def error_at(sentence: str, text: str, place: Place) -> RondelError:
    """An error that shows the text below its sentence, with carets below the place."""
    start, end = place
    return RondelError(f"{sentence}\n  {text}\n  {' ' * start}{'^' * max(1, end - start)}")


def closest_words(name: str, names: Iterable[str]) -> str | None:
    """The most similar of `names`; None if none is similar."""
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    return near[0] if near else None


def join_words(words: Iterable[object], last: str) -> str:
    """Words as a list in a sentence: "1, 2 or 4"."""
    *first, end = map(str, words)
    return f"{', '.join(first)} {last} {end}" if first else end


def divisors(number: int) -> list[int]:
    """All divisors of a number, in order."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def nearest(options: Iterable[int], asked: int, most: int = 4) -> list[int]:
    """The options nearest to `asked`, in order."""
    return sorted(sorted(options, key=lambda n: (abs(n - asked), n))[:most])


def plural(number: int, one: str, more: str | None = None) -> str:
    """A count with its noun: "1 round", "2 rounds"."""
    return f"{number} {one if number == 1 else more or f'{one}s'}"
