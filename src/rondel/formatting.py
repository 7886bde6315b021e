"""Texts for numbers, counts, times and sizes, and the words and numbers that messages suggest."""

from __future__ import annotations

import difflib
import math
import re
import textwrap
from collections.abc import Iterable
from types import ModuleType


def number(value: float | None) -> str:
    """About four digits; a dash if unknown."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.3f}" if size >= 0.001 or size == 0 else f"{value:.1e}"


def short_number(count: int) -> str:
    """A count in thousands, millions or billions: "1.5M"."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.4g}{letter}"
    return str(count)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, rounded up: "1:02:03"."""
    minutes, second = divmod(math.ceil(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def size(count: int) -> str:
    """A number of bytes with its unit: "1.5 MiB"."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def plural(number: int, one: str, more: str | None = None) -> str:
    """A count with its noun: "1 round", "2 rounds"."""
    return f"{number} {one if number == 1 else more or f'{one}s'}"


def join_words(words: Iterable[object], last: str) -> str:
    """Words as a list in a sentence: "1, 2 or 4"."""
    *first, end = map(str, words)
    return f"{', '.join(first)} {last} {end}" if first else end


def wrapped(text: str, columns: int = 80, first: str = "", others: str = "") -> list[str]:
    """Lines of a text, broken neither within a path nor between a number and its unit.

    They begin with `first` and `others`. A no-break space, where no line ends, becomes a space.
    """
    text = re.sub(r"(\d) (bytes|[KMG]iB)", "\\1\N{NO-BREAK SPACE}\\2", text)
    lines = textwrap.wrap(
        text,
        max(columns, 10),
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines] or [""]


def described(value: object) -> str:
    """A value in a sentence: its repr, but of a module the name alone."""
    return f"the module {value.__name__}" if isinstance(value, ModuleType) else f"{value!r}"


def closest_words(name: str, names: Iterable[str]) -> str | None:
    """The most similar of `names`; None if none is similar."""
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    return near[0] if near else None


def divisors(number: int) -> list[int]:
    """All divisors of a number, in order."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def nearest(options: Iterable[int], asked: int, most: int = 4) -> list[int]:
    """The options nearest to `asked`, in order."""
    return sorted(sorted(options, key=lambda n: (abs(n - asked), n))[:most])
