"""How busy the pieces of a run were in the last seconds, and how that is shown.

Plain records, so that drawing them needs no run; `profiling.live` fills them in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.cells import set_cell_size
from rich.text import Text

from rondel.formatting import plural, size, wrapped

_BAR = 12  # columns of a piece's seen
_LABEL = 10  # columns of a label
_LITTLE = 0.01  # parts below are not named


class PieceUtilisation(NamedTuple):
    """The copies of a piece."""

    name: str
    copies: int
    busy: float  # the part of their time in which they wait for nobody
    parts: tuple[tuple[str, float], ...]  # what of their time goes where, the largest first
    memory: int = 0  # bytes of their processes; 0 where they are in the driver's, or unknown

    @property
    def title(self) -> str:
        """The name with its copies, as in the table of a profile."""
        return self.name if self.copies == 1 else f"{self.name}, {self.copies} copies"

    @property
    def short(self) -> str:
        """A title without a comma, for lists and narrow terminals."""
        return self.name if self.copies == 1 else f"{self.name} x {self.copies}"


class Utilisation(NamedTuple):
    """How busy a ring is, from the timings that copies add to their answers."""

    pieces: tuple[PieceUtilisation, ...]
    bound: str  # the bottleneck: a stage, or transport, python
    part: float  # that it takes of the time of a piece
    piece: str  # which that is
    text: str  # the same in words
    lag: int
    free: bool
    driver_memory: int  # bytes of the driver's process
    free_memory: int  # bytes that the machine has left

    def as_json(self) -> dict[str, Any]:
        """Its fields by name, as live.json has them."""
        pieces = [piece._asdict() | {"parts": dict(piece.parts)} for piece in self.pieces]
        return self._asdict() | {"pieces": pieces}


def describe(seen: Utilisation) -> list[str]:
    """The lines of a log on it, in parts between which a line may end."""
    turn = "each round" if not seen.lag and not seen.free else f"the time of {seen.piece}"
    busy = [f"{p.short} {p.busy:.0%}" for p in seen.pieces]
    bound = f"bound by {seen.bound} ({seen.part:.0%} of {turn})"
    held = _held(seen)
    return [bound, f"busy: {busy[0]}", *busy[1:], f"memory: {held[0]}", *held[1:]]


def draw(seen: Utilisation, lag: float | None, width: int) -> list[Text]:
    """The ring with a bar for each piece, then its bottleneck, lag and memory.

    `lag` is the age of the weights just now, in rounds.
    """
    names = _names(seen.pieces, width)
    name = len(names[0])
    rest = width - (2 + name + _BAR + 4) - 4
    lines, last = [], len(seen.pieces) - 1
    for i, piece in enumerate(seen.pieces):
        corner = "↻ " if last == 0 else "╭▶" if i == 0 else "╰─" if i == last else "│ "
        slowest = piece.name == seen.piece
        line = Text.assemble(
            (f"{corner} ", "dim"),
            (f"{names[i]} ", "bold" if slowest else ""),
            bar(piece.busy, _BAR, "yellow" if slowest else "cyan"),
            (f" {piece.busy:4.0%} "),
            (_parts(piece, rest), "dim"),
        )
        lines.append(line)
    lines += labelled("bound", seen.text, width)
    if seen.lag or seen.free:
        lines += labelled("lag", _lag(seen, lag), width)
    return lines + labelled("memory", ", ".join(_held(seen)), width)


def _names(pieces: Sequence[PieceUtilisation], width: int) -> list[str]:
    """The titles of the pieces, padded to one width; short ones if they would be wide."""
    names = [piece.title for piece in pieces]
    if max(map(len, names)) > width // 4:
        names = [_cut(piece, width // 3) for piece in pieces]
    columns = max(map(len, names))
    return [set_cell_size(name, columns) for name in names]


def _cut(piece: PieceUtilisation, columns: int) -> str:
    """A short title in so many columns: its name is cut, never its copies."""
    if len(piece.short) <= columns:
        return piece.short
    copies = piece.short.removeprefix(piece.name)
    return f"{piece.name[: columns - len(copies) - 1]}…{copies}"


def bar(part: float, width: int, style: str) -> Text:
    """A bar that can be read without colours."""
    full = min(width, round(part * width))
    return Text.assemble(("━" * full, style), ("┄" * (width - full), "dim"))


def labelled(label: str, text: str, width: int) -> list[Text]:
    """A label beside a text, which is wrapped."""
    return [
        Text.assemble((f"{'' if i else label:{_LABEL}}", "dim"), line)
        for i, line in enumerate(wrapped(text, width - _LABEL))
    ]


def _parts(piece: PieceUtilisation, width: int) -> str:
    """Where most of a piece's time goes, as far as it fits."""
    text = ""
    for name, part in piece.parts:
        more = f"{text}{', ' if text else ''}{name} {part:.0%}"
        if part < _LITTLE or len(more) > width:
            break
        text = more
    return text


def _lag(seen: Utilisation, lag: float | None) -> str:
    bound = "at most " if seen.free else ""
    now = "" if lag is None else f", now {lag:.2g}"
    return f"weights {bound}{plural(seen.lag, 'round')} old{now}"


def _held(seen: Utilisation) -> list[str]:
    """Bytes by whose they are, then what is left."""
    held = [("driver", 1, seen.driver_memory)] + [(p.name, p.copies, p.memory) for p in seen.pieces]
    said = [f"{n} {_size(b)}" if c == 1 else f"{n} {c} x {_size(b // c)}" for n, c, b in held if b]
    said += [f"{_size(seen.free_memory)}\N{NO-BREAK SPACE}left"] if seen.free_memory else []
    return said or ["unknown"]


def _size(count: int) -> str:
    """Rounded bytes."""
    return f"{count / 2**20:.0f} MiB" if count < 2**30 else size(count)
