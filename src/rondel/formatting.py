"""Numbers, counts and times, as short as they can be shown."""

from __future__ import annotations

import math


def number(value: float | None) -> str:
    """Some four digits of it; a dash if it is not known."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.3f}" if size >= 0.001 or size == 0 else f"{value:.1e}"


def short_number(count: int) -> str:
    """In thousands, millions or billions."""
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.4g}{letter}"
    return str(count)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, up to the next whole one."""
    minutes, second = divmod(math.ceil(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
