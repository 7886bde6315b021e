"""The parser of resources per copy: "actor:cpu=1 learner:cpu=4,gpu=1,memory=4GiB".

    resources = (piece ":" name "=" amount ("," name "=" amount)*)*

A piece is named in full or by any of its stages. `memory` is in bytes, with a unit; `cpu`, `gpu`
and custom names are numbers.
"""

from __future__ import annotations

import math
import re
from collections import deque
from contextlib import suppress

from rondel.formatting import closest_words, join_words
from rondel.plan.parser import Token, one_line
from rondel.plan.pieces import ALIASES, error_at
from rondel.plan.plan import Plan

KNOWN = ("cpu", "gpu", "memory")
UNITS = {"": 1, "B": 1}
UNITS |= {f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)}
UNITS |= {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)}


def resources_for(plan: Plan, text: str) -> tuple[dict[str, float], ...]:
    """The resources of a copy of each piece, by name; one CPU by default.

    >>> resources_for(parse("actor*4 | learner"), "learner:cpu=2,gpu=1")
    ({'cpu': 1.0}, {'cpu': 2.0, 'gpu': 1.0})
    """
    text = one_line(text)
    given: tuple[dict[str, float], ...] = tuple({} for _ in plan.pieces)
    words = deque(Token(m.group(), m.start()) for m in re.finditer(r"[^\s:,=]+|\S", text))
    words.append(Token("", len(text)))
    while words[0].text:
        piece = _piece(plan, text, _next(words, text, "A piece"))
        _next(words, text, ":")
        _need(given[piece], text, words)
        while words[0].text == ",":
            words.popleft()
            _need(given[piece], text, words)
    return tuple({"cpu": 1.0} | needs for needs in given)


def _next(words: deque[Token], text: str, wanted: str) -> Token:
    """The next word, which must be `wanted`: a sign, or else any word."""
    word = words.popleft()
    is_sign = word.text in ("", ":", "=", ",")
    if word.text != wanted and (is_sign or wanted in (":", "=")):
        where = f"before {word.text!r}" if word.text else "at the end"
        what = f"`{wanted}`" if wanted in (":", "=") else wanted
        example = "An example: `actor:cpu=1 learner:cpu=4,gpu=1`"
        raise error_at(f"{what} is missing {where}. {example}.", text, word.place)
    return word


def _piece(plan: Plan, text: str, word: Token) -> int:
    """The index of the piece that a word names."""
    stages: list[str] = []
    for name in word.text.split("+"):
        stages += ALIASES.get(name, (name,))
    for i, piece in enumerate(plan.pieces):
        if set(stages) <= set(piece.stages):
            return i
    names = [piece.name for piece in plan.pieces]
    there = [stage for piece in plan.pieces for stage in piece.stages]
    if set(stages) <= set(there):
        parts = [piece.name for piece in plan.pieces if set(stages) & set(piece.stages)]
        wrong = f"`{plan}` has {word.text} in several pieces"
        raise error_at(f"{wrong}: {join_words(parts, 'and')}.", text, word.place)
    near = closest_words(word.text, [*names, *there, *ALIASES])
    hint = f"Did you mean {near}?" if near else f"Its pieces: {', '.join(names)}."
    raise error_at(f"`{plan}` has no piece {word.text!r}. {hint}", text, word.place)


def _need(needs: dict[str, float], text: str, words: deque[Token]) -> None:
    """Read one `name=amount`."""
    name = _next(words, text, "A resource")
    _next(words, text, "=")
    amount = _next(words, text, "An amount")
    singular = name.text.lower().removesuffix("s")
    if name.text not in KNOWN and singular in KNOWN:  # no machine has one of that name
        raise error_at(
            f"Unknown resource {name.text!r}. Did you mean {singular}?", text, name.place
        )
    if name.text in needs:
        raise error_at(f"{name.text} is given twice for this piece.", text, name.place)
    if name.text == "memory":
        value = _bytes(amount.text)
        wanted = f"bytes, as in memory=4GiB (units: {', '.join(list(UNITS)[1:])})"
    else:
        value, wanted = _number(amount.text), "a number, 0 or more"
    if value is None:
        wrong = f"{name.text} must be {wanted}, got {amount.text!r}."
        raise error_at(wrong, text, amount.place)
    needs[name.text] = value


def _bytes(text: str) -> float | None:
    found = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text)
    units = {unit.lower(): size for unit, size in UNITS.items()}
    if not found or found[2].lower() not in units:
        return None
    number = _number(found[1])
    size = math.inf if number is None else number * units[found[2].lower()]
    return float(round(size)) if size < math.inf else None


def _number(text: str) -> float | None:
    with suppress(ValueError):
        number = float(text)
        if 0 <= number < math.inf:
            return number
    return None
