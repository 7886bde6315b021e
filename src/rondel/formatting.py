"""Short texts for numbers, counts, times and sizes."""

from __future__ import annotations

import math


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
