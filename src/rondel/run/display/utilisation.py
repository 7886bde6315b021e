"""What the pieces of a run were busy with in the last seconds, and how that is shown.

Plain records, so that drawing them needs no run; `window` fills them in.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import set_cell_size
from rich.text import Text

from rondel.formatting import plural, size

_BAR = 12  # columns of a piece's load
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
        """As the table of a profile has it."""
        return self.name if self.copies == 1 else f"{self.name}, {self.copies} copies"

    @property
    def short(self) -> str:
        """Where there is little room, or a comma would part it from its copies."""
        return self.name if self.copies == 1 else f"{self.name} x {self.copies}"


class Utilisation(NamedTuple):
    """The ring, as far as its copies have said in passing."""

    pieces: tuple[PieceUtilisation, ...]
    bound: str  # a stage, or transport, python
    part: float  # that it takes of the time of a piece
    whose: str
    text: str  # what that means, and what would help
    lag: int
    free: bool
    driver: int  # bytes of the driver's process
    room: int  # bytes that the machine has left


def describe(load: Utilisation) -> list[str]:
    """What a log says of it, in parts between which a line may end."""
    turn = "each round" if not load.lag and not load.free else f"the time of {load.whose}"
    busy = [f"{p.short} {p.busy:.0%}" for p in load.pieces]
    bound = f"bound by {load.bound} ({load.part:.0%} of {turn})"
    held = _held(load) or ["unknown"]
    return [bound, f"busy: {busy[0]}", *busy[1:], f"memory: {held[0]}", *held[1:]]


def draw(load: Utilisation, lag: float | None, width: int, brief: bool = False) -> list[Text]:
    """The ring with its loads, then what they mean, if not `brief` with what would help.

    `lag` is how old the weights were just now.
    """
    names = _names(load.pieces, width)
    name = len(names[0])
    rest = width - (2 + name + _BAR + 4) - 4
    lines, last = [], len(load.pieces) - 1
    for i, piece in enumerate(load.pieces):
        corner = "↻ " if last == 0 else "╭▶" if i == 0 else "╰─" if i == last else "│ "
        slowest = piece.name == load.whose
        line = Text.assemble(
            (f"{corner} ", "dim"),
            (f"{names[i]} ", "bold" if slowest else ""),
            bar(piece.busy, _BAR, "yellow" if slowest else "cyan"),
            (f" {piece.busy:4.0%} "),
            (_parts(piece, rest), "dim"),
        )
        lines.append(line)
    means = load.text.partition(". ")[0] + "." if brief else load.text
    lines += labelled("bound", means, width)
    if load.lag or load.free:
        lines += labelled("lag", _lag(load, lag), width)
    return lines + labelled("memory", _memory(load), width)


def _names(pieces: Sequence[PieceUtilisation], width: int) -> list[str]:
    """What the pieces are called, all in as many columns; in short if it would be many of them."""
    names = [piece.title for piece in pieces]
    if max(map(len, names)) > width // 4:
        names = [_cut(piece, width // 3) for piece in pieces]
    columns = max(map(len, names))
    return [set_cell_size(name, columns) for name in names]


def _cut(piece: PieceUtilisation, columns: int) -> str:
    """A short name in so many columns: what is too long for it goes before its copies do."""
    if len(piece.short) <= columns:
        return piece.short
    copies = piece.short.removeprefix(piece.name)
    return f"{piece.name[: columns - len(copies) - 1]}…{copies}"


def bar(part: float, width: int, style: str) -> Text:
    """A part of one as so many columns; it can be read without colours."""
    full = min(width, round(part * width))
    return Text.assemble(("━" * full, style), ("┄" * (width - full), "dim"))


def labelled(label: str, text: str, width: int) -> list[Text]:
    """A label, and a text beside it in as many lines as it needs."""
    wrapped = textwrap.wrap(text, max(width - _LABEL, 10), break_on_hyphens=False) or [""]
    return [
        Text.assemble((f"{'' if i else label:{_LABEL}}", "dim"), line)
        for i, line in enumerate(wrapped)
    ]


def _parts(piece: PieceUtilisation, width: int) -> str:
    """What most of a piece's time goes into, as far as there is room to say it."""
    text = ""
    for name, part in piece.parts:
        more = f"{text}{', ' if text else ''}{name} {part:.0%}"
        if part < _LITTLE or len(more) > width:
            break
        text = more
    return text


def _lag(load: Utilisation, lag: float | None) -> str:
    bound = "at most " if load.free else ""
    now = "" if lag is None else f", now {lag:.2g}"
    return f"weights {bound}{plural(load.lag, 'round')} old{now}"


def _memory(load: Utilisation) -> str:
    return ", ".join(_held(load)) or "unknown"


def _held(load: Utilisation) -> list[str]:
    """Bytes by whose they are, then what is left."""
    held = [("driver", 1, load.driver)] + [(p.name, p.copies, p.memory) for p in load.pieces]
    said = [f"{n} {_size(b)}" if c == 1 else f"{n} {c} x {_size(b // c)}" for n, c, b in held if b]
    return said + ([f"{_size(load.room)}\N{NO-BREAK SPACE}left"] if load.room else [])


def _size(count: int) -> str:
    """Bytes that need not be exact, with no end of a line inside."""
    text = f"{count / 2**20:.0f} MiB" if count < 2**30 else size(count)
    return text.replace(" ", "\N{NO-BREAK SPACE}")
