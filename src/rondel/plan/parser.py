"""The parser of plans.

    plan  = piece ("|" piece)*  or  preset ["*" copies]
    piece = name ("+" name)* ["*" copies]
    copies = number | number ".." number | "auto"

A name is a stage or an alias; copies are of the whole piece. A range, or `auto`, runs as many as
the machine has cores for. Blanks between words and signs are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from rondel.errors import RondelError
from rondel.formatting import join_words
from rondel.plan.pieces import (
    ALIASES,
    AUTO,
    ORDER,
    Piece,
    Place,
    Written,
    error_at,
    fault_error,
    first_fault,
)
from rondel.plan.plan import Plan
from rondel.plan.presets import PRESETS

LONGEST = 1_000  # characters: an error shows the whole text

_NUMBER = r"-?[0-9]{1,9}"
_RANGE = r"([0-9]{1,9})\.\.([0-9]{1,9})"


def parse(text: str, lag: int | None = None, free: bool | None = None) -> Plan:
    """Parse a plan; `lag` and `free` override those of a preset.

    >>> parse("actor*8 | learner", lag=1)
    >>> parse("impala*8")
    """
    text = one_line(text)
    words = tokens(text)
    if not words:
        return Plan(())  # raises
    name = words[0].text
    alone = len(words) == 1 or words[1].text == "*"
    if name in PRESETS and alone and not {"|", "+"} & {word.text for word in words}:
        preset = PRESETS[name]
        pieces = _scaled(text, name, words[1:])
        lag = preset.lag if lag is None else lag
        free = preset.free if free is None else free
    else:
        pieces = _read(text, words)
    return Plan(pieces, 0 if lag is None else lag, bool(free))


def _read(text: str, words: list[Token]) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    written = Written(text, [], [])
    end = Token("", len(text))
    current: list[Token] = []
    for word in (*words, end):
        if word is not end and word.text != "|":
            current.append(word)
            continue
        piece, stages, copies = _read_piece(text, current, word)
        pieces.append(piece)
        written.stages.append(stages)
        written.copies.append(copies)
        current = []
    fault = first_fault(pieces)
    if fault:
        raise fault_error(fault, written)
    return tuple(pieces)


def _read_piece(text: str, words: list[Token], stop: Token) -> tuple[Piece, list[Place], Place]:
    """One piece, with the places of its stages and of its copies.

    `stop` is the token after it: a cut, or the end.
    """
    star = next((i for i, word in enumerate(words) if word.text == "*"), len(words))
    ending = (*words, stop)[star]
    stages: list[str] = []
    places: list[Place] = []
    for i, word in enumerate((*words[:star], ending)):
        if i % 2 == 0:
            _expect_name(text, word)
            meaning = ALIASES.get(word.text, (word.text,))
            stages += meaning
            places += [word.place] * len(meaning)
        elif word is not ending and word.text != "+":
            raise _unexpected(text, word)
    copies, place = _copies(text, words[star:], stop)
    return Piece(tuple(stages), *copies), places, place


def _expect_name(text: str, word: Token) -> None:
    if re.fullmatch(_NUMBER, word.text):
        raise error_at("The number of copies comes after the piece: `actor*4`.", text, word.place)
    if word.text in ("", "+", "|", "*"):
        where = f"before `{word.text}`" if word.text else "at the end"
        names = join_words((*ORDER, *ALIASES), "or")
        raise error_at(f"A stage is missing {where}. Use {names}.", text, word.place)
    if not re.match(r"[\w.-]", word.text):
        raise _unexpected(text, word)


def _copies(text: str, words: list[Token], stop: Token) -> tuple[tuple[int, int | None], Place]:
    """The number after `*`, with the least of a range, and its place; 1 where there is none."""
    if not words:
        return (1, None), stop.place
    if len(words) == 1:
        raise error_at("`*` needs a number of copies: `*4`.", text, words[0].place)
    star, given, *more = words
    number = _number_or_range(given.text)
    if number is None:
        wanted = "Copies must be an integer, 1 or more, a range (`4..16`) or `auto`"
        raise error_at(f"{wanted}, got {given.text!r}.", text, given.place)
    if more:
        raise _unexpected(text, more[0])
    return number, (star.start, given.place[1])


def _number_or_range(word: str) -> tuple[int, int | None] | None:
    """The copies and the least of them; None if the word is neither number nor range."""
    if word == "auto":
        return AUTO, 1
    if found := re.fullmatch(_RANGE, word):
        return int(found[2]), int(found[1])
    return (int(word), None) if re.fullmatch(_NUMBER, word) else None


def _unexpected(text: str, word: Token) -> RondelError:
    wrong = f"Unexpected `{word.text}`"
    return error_at(f"{wrong}: `+` joins stages, `|` cuts, `*4` makes copies.", text, word.place)


def _scaled(text: str, name: str, words: list[Token]) -> tuple[Piece, ...]:
    """A preset's pieces with a given number of copies."""
    template = PRESETS[name].text
    pieces = _read(template, tokens(template))
    if not words:
        return pieces
    (asked, least), place = _copies(text, words, Token("", len(text)))
    if least is not None:
        return _with_range(text, name, pieces, place, asked, least)
    most = max(piece.copies for piece in pieces)
    if asked < 1:
        raise error_at(f"Copies of {name} must be 1 or more, got {asked}.", text, place)
    if most == 1 and asked > 1:
        wrong = f"{name} has one copy of each piece, so it cannot be scaled"
        raise error_at(f"{wrong}. Write out its plan, `{template}`, with copies.", text, place)
    scaled = _scale(pieces, asked)
    if scaled is None:
        below = next(n for n in range(asked, 0, -1) if _scale(pieces, n))
        above = next(n for n in range(asked, asked + most) if _scale(pieces, n))
        wrong = f"{name} is `{template}`, which does not scale evenly to {asked}"
        raise error_at(f"{wrong}. Use {name}*{below} or {name}*{above}.", text, place)
    return scaled


def _with_range(
    text: str, name: str, pieces: Sequence[Piece], place: Place, most: int, least: int
) -> tuple[Piece, ...]:
    """A preset's pieces, with a range for those that have most copies."""
    many = max(2, *(piece.copies for piece in pieces))
    ranged = [
        piece._replace(copies=most, least=least) if piece.copies == many else piece
        for piece in pieces
    ]
    fault = first_fault(ranged)
    if fault:
        raise error_at(f"{name} is `{PRESETS[name].text}`. {fault.sentence}", text, place)
    return tuple(ranged)


def _scale(pieces: tuple[Piece, ...], number: int) -> tuple[Piece, ...] | None:
    """Scale copies by the rule in `presets`; None if that gives fractions of a copy."""
    most = max(piece.copies for piece in pieces)
    scaled = []
    for piece in pieces:
        copies, left = divmod(piece.copies * number, most)
        if piece.copies == 1 or copies == 0:
            copies, left = 1, 0
        if left:
            return None
        scaled.append(piece._replace(copies=copies))
    return tuple(scaled)


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
