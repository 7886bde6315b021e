"""How a run is shown to the one who watches: a panel in a terminal, plain lines elsewhere.

All displays have the same three methods. They write to the given stream, stderr if none, so that
stdout is left to whoever reads it by machine.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
from collections.abc import Callable
from itertools import zip_longest
from typing import Any, NamedTuple, Protocol, TextIO

from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel as Box
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text


class Progress(NamedTuple):
    """How far a run is. What isn't known yet is None."""

    algorithm: str
    env: str
    steps: int
    total_steps: int
    seconds: float
    steps_per_second: float
    episodes: int
    return_mean: float | None
    length_mean: float | None
    metrics: dict[str, float]
    until_return: float | None = None

    @property
    def part(self) -> float:
        return min(self.steps / max(self.total_steps, 1), 1.0)

    @property
    def left(self) -> float | None:
        """Seconds to go at this speed."""
        rest = max(self.total_steps - self.steps, 0)
        return rest / self.steps_per_second if self.steps_per_second > 0 else None


class Display(Protocol):
    def start(self, summary: list[tuple[str, str]]) -> None:
        """Say what will run, as (label, text) rows."""

    def update(self, progress: Progress) -> None:
        """Say how far it is; most calls show nothing, so call it as often as you like."""

    def note(self, message: str) -> None:
        """Say what the one who watches should know, while the run goes on."""

    def stop(self, message: str) -> None:
        """Show the last progress, then how it ended. Also right after an exception."""


def choose(stream: TextIO | None = None) -> Display:
    """The display that suits a stream: stderr if none is given."""
    stream = stream or sys.stderr
    drawable = stream.isatty() and os.environ.get("TERM") != "dumb"
    return Panel(stream) if drawable else Lines(stream)


class Silent:
    """Shows nothing."""

    def start(self, summary: list[tuple[str, str]]) -> None: ...

    def update(self, progress: Progress) -> None: ...

    def note(self, message: str) -> None: ...

    def stop(self, message: str) -> None: ...


class Unbroken:
    """Another display until its stream fails, then silence: a log on a full disk ends no run."""

    def __init__(self, inner: Display) -> None:
        self._inner = inner

    def start(self, summary: list[tuple[str, str]]) -> None:
        self._try(self._inner.start, summary)

    def update(self, progress: Progress) -> None:
        self._try(self._inner.update, progress)

    def note(self, message: str) -> None:
        self._try(self._inner.note, message)

    def stop(self, message: str) -> None:
        self._try(self._inner.stop, message)

    def _try(self, show: Callable[[Any], None], what: Any) -> None:
        try:
            show(what)
        except OSError:
            self._inner = Silent()


class Lines:
    """Plain lines for logs and pipes: at most one every few seconds, without control characters."""

    def __init__(self, stream: TextIO | None = None, every: float = 5.0) -> None:
        self._stream = stream or sys.stderr
        self._every = every
        self._shown = -math.inf  # seconds of the run at the last line
        self._waiting: Progress | None = None

    def start(self, summary: list[tuple[str, str]]) -> None:
        self._print("; ".join(f"{label}: {text}" for label, text in summary))

    def update(self, progress: Progress) -> None:
        self._waiting = progress
        if progress.seconds - self._shown >= self._every:
            self._show(progress)

    def note(self, message: str) -> None:
        self._print(message)

    def stop(self, message: str) -> None:
        if self._waiting:
            self._show(self._waiting)
        self._print(message)

    def _show(self, progress: Progress) -> None:
        self._print(_line(progress))
        self._shown, self._waiting = progress.seconds, None

    def _print(self, text: str) -> None:
        if not text:
            return
        text = "".join(c if c.isprintable() else " " for c in text)
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        self._stream.flush()


class Panel:
    """A live panel: how far, how good, how fast. Under the bar, the return's curve so far."""

    def __init__(self, stream: TextIO | None = None, every: float = 0.125) -> None:
        self._console = Console(file=stream or sys.stderr, highlight=False)
        self._every = every
        self._shown = -math.inf
        self._waiting: Progress | None = None
        self._curve = [math.nan] * 52  # the return by part of the run
        self._live: Live | None = None

    def start(self, summary: list[tuple[str, str]]) -> None:
        rows = Table.grid(padding=(0, 2))
        for label, text in summary:
            rows.add_row(Text(label, style="dim"), Text(text))
        self._console.print(Padding(rows, (0, 2)))
        self._live = Live(
            Text("    starting …", style="dim"),
            console=self._console,
            # a thread that redraws would be in the way of processes that fork
            auto_refresh=False,
            # what an env prints appears above the panel, unless it goes to a file or a pipe
            redirect_stdout=sys.stdout.isatty(),
        )
        # the cursor is hidden meanwhile, and must come back even if nobody calls stop
        atexit.register(self._live.stop)
        self._live.start(refresh=True)

    def update(self, progress: Progress) -> None:
        self._waiting = progress
        if progress.return_mean is not None and math.isfinite(progress.return_mean):
            self._curve[int(progress.part * (len(self._curve) - 1))] = progress.return_mean
        if progress.seconds - self._shown >= self._every:
            self._show(progress)

    def note(self, message: str) -> None:
        self._console.print(Padding(Text(message), (0, 2)))

    def stop(self, message: str) -> None:
        if self._waiting:
            self._show(self._waiting)
        if self._live:
            self._live.stop()
            atexit.unregister(self._live.stop)
            self._live = None
        if message:
            self._console.print(Padding(Text(message), (0, 2)))

    def _show(self, progress: Progress) -> None:
        if self._live:
            # room for the ^C that a terminal echoes: a wrapped line would break the panel
            width = min(self._console.width, 80) - 4
            self._live.update(_panel(progress, self._curve, width), refresh=True)
        self._shown, self._waiting = progress.seconds, None


def _line(progress: Progress) -> str:
    parts = [
        f"{progress.steps:,} of {progress.total_steps:,} steps ({progress.part:.0%})",
        f"{_number(progress.steps_per_second or None)} steps/s",
        f"{progress.episodes:,} {'episode' if progress.episodes == 1 else 'episodes'}",
    ]
    if progress.return_mean is not None:
        parts.append(f"return {_number(progress.return_mean)}")
    if progress.length_mean is not None:
        parts.append(f"length {_number(progress.length_mean)}")
    parts += [f"{name} {_number(value)}" for name, value in progress.metrics.items()]
    if progress.left:
        parts.append(f"{_duration(progress.left)} left")
    return ", ".join(parts)


def _panel(progress: Progress, curve: list[float], width: int) -> RenderableType:
    left = [
        ("return", _number(progress.return_mean)),
        ("length", _number(progress.length_mean)),
        ("episodes", f"{progress.episodes:,}"),
        ("steps", f"{progress.steps:,} of {_short(progress.total_steps)}"),
        ("steps/s", _number(progress.steps_per_second or None)),
    ]
    if progress.until_return is not None:
        left[0] = ("return", f"{left[0][1]} until {_number(progress.until_return)}")
    right = [(name, _number(value)) for name, value in progress.metrics.items()]

    head = Table.grid(padding=(0, 2))
    clock = f"{_duration(progress.left)} left" if progress.left else _duration(progress.seconds)
    bar = ProgressBar(progress.total_steps, progress.steps, len(curve), complete_style="cyan")
    head.add_row(bar, f"{progress.part:.0%}", Text(clock, style="dim"))
    head.add_row(Text(_sparkline(curve), style="cyan"))

    # widths are fixed so that nothing moves while the numbers grow
    body = Table.grid(padding=(0, 2))
    body.add_column(style="dim", no_wrap=True)
    body.add_column(width=22)
    body.add_column(style="dim", max_width=24)
    body.add_column(justify="right", min_width=8, no_wrap=True)
    for (label, text), (name, value) in zip_longest(left, right, fillvalue=("", "")):
        body.add_row(label, Text(text, style="bold" if label == "return" else ""), name, value)

    title = Text.assemble((progress.algorithm, "bold"), f" on {progress.env}")
    rows = Group(head, "", body)
    return Box(rows, box=ROUNDED, title=title, title_align="left", border_style="dim", width=width)


def _sparkline(values: list[float]) -> str:
    """A character for each value up to the last known one; NaN stays at the value before it."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return ""
    low, high = min(known), max(known)
    bars, text = "▁▂▃▄▅▆▇█", " "
    for value in values:
        if math.isnan(value):
            text += text[-1]
        else:
            text += bars[int((value - low) / (high - low or 1.0) * (len(bars) - 1))]
    end = max(i for i, value in enumerate(values) if not math.isnan(value))
    return text[1 : end + 2]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.3f}" if size >= 0.001 or size == 0 else f"{value:.1e}"


def _short(count: int) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.4g}{letter}"
    return str(count)


def _duration(seconds: float) -> str:
    minutes, second = divmod(math.ceil(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
