"""How a run is shown to the one who watches: a panel in a terminal, plain lines elsewhere.

All displays have the same four methods. They write to the given stream, stderr if none, so that
stdout is left to whoever reads it by machine.
"""

from __future__ import annotations

import atexit
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rondel.formatting import duration, number, short_number
from rondel.run.display import panel, utilisation
from rondel.run.display.utilisation import Utilisation

_MINUTE = 60.0  # seconds after which a log says again what it has said before


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
    load: Utilisation | None = None
    seed: int | None = None  # which it is, of several
    settled: bool = True  # has all of it run by now, so that this speed will last?

    @property
    def part(self) -> float:
        return min(self.steps / max(self.total_steps, 1), 1.0)

    @property
    def left(self) -> float | None:
        """Seconds to go at this speed, once it is one that will last."""
        rest = max(self.total_steps - self.steps, 0)
        return rest / self.steps_per_second if self.settled and self.steps_per_second > 0 else None


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
    encoding = getattr(stream, "encoding", None) or "utf-8"
    drawable = stream.isatty() and os.environ.get("TERM") != "dumb"
    drawable = drawable and encoding.lower().startswith("utf")  # it has more than ASCII in it
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
    """Plain lines for logs and pipes: at most one every few seconds, without control characters.

    Which stage bounds the run is said when it is known, when it changes, and else every minute.
    """

    def __init__(self, stream: TextIO | None = None, every: float = 5.0) -> None:
        self._stream = stream or sys.stderr
        self._every = every
        self._shown: dict[int | None, float] = {}  # seconds of the run at its last line, by seed
        self._waiting: dict[int | None, Progress] = {}
        self._bound, self._said = "", -math.inf  # what was last said of it, and when

    def start(self, summary: list[tuple[str, str]]) -> None:
        indent = max((len(label) for label, _ in summary), default=0) + 2
        for label, text in summary:
            for i, line in enumerate(_wrapped(text, 80 - indent)):
                self._print(f"{'' if i else label:{indent}}{line}")

    def update(self, progress: Progress) -> None:
        self._waiting[progress.seed] = progress
        if progress.seconds - self._shown.get(progress.seed, -math.inf) >= self._every:
            self._show(progress)

    def note(self, message: str) -> None:
        for i, line in enumerate(_wrapped(message, 78)):
            self._print(f"{'  ' if i else ''}{line}")

    def stop(self, message: str) -> None:
        for progress in list(self._waiting.values()):
            self._show(progress)
        for i, line in enumerate(message.splitlines()):
            # the first may be looked for by a program, and rows of a table stay whole
            whole = i == 0 or "  " in line
            for part in [line] if whole else _wrapped(line, 80):
                self._print(part)

    def _show(self, progress: Progress) -> None:
        parts = _parts(progress) if progress.seed is None else [_seed_line(progress)]
        for line in _filled(parts):
            self._print(line)
        self._shown[progress.seed] = progress.seconds
        del self._waiting[progress.seed]
        seen = progress.load if progress.seed is None else None
        if seen and (seen.bound != self._bound or progress.seconds - self._said >= _MINUTE):
            for line in _filled(utilisation.describe(seen)):
                self._print(line)
            self._bound, self._said = seen.bound, progress.seconds

    def _print(self, text: str) -> None:
        if not text:
            return
        text = "".join(c if c.isprintable() else " " for c in text)
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        self._stream.flush()


class Panel:
    """A live panel: how far, how good, how fast, and why no faster.

    Under the bar is the return's curve so far.
    """

    def __init__(self, stream: TextIO | None = None, every: float = 0.5) -> None:
        self._console = Console(file=stream or sys.stderr, highlight=False)
        self._every = every
        self._shown = -math.inf
        self._waiting: Progress | None = None
        self._curve = [math.nan] * panel.CURVE  # the return by part of the run
        self._seeds: dict[int, Progress] = {}
        self._live: Live | None = None

    def start(self, summary: list[tuple[str, str]]) -> None:
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="dim", no_wrap=True)
        labels = max((len(label) for label, _ in summary), default=0)
        for label, text in summary:
            rows.add_row(label, Text("\n".join(_wrapped(text, self._console.width - labels - 6))))
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
        if progress.seed is not None:
            self._seeds[progress.seed] = progress
        # a seed that comes after another has a clock of its own
        if abs(progress.seconds - self._shown) >= self._every:
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
        indent = 2 if self._console.width >= 84 else 0  # a table has 80 columns
        for line in message.splitlines():
            if "  " in line:  # a row of a table stays whole, however narrow the terminal is
                self._console.print(Text(f"{'':{indent}}{line}"), soft_wrap=True)
            else:
                self._console.print(Padding(Text(line), (0, 0, 0, indent)))

    def _show(self, progress: Progress) -> None:
        if self._live:
            # room for the ^C that a terminal echoes: a wrapped line would break the panel
            width = min(self._console.width, 80) - 4
            seeds = [self._seeds[seed] for seed in sorted(self._seeds)]
            height = self._console.height
            drawn = (
                panel.of_seeds(seeds, width)
                if seeds
                else panel.of_run(progress, self._curve, width, height)
            )
            self._live.update(drawn, refresh=True)
        self._shown, self._waiting = progress.seconds, None


def _filled(parts: list[str]) -> list[str]:
    """Parts with commas between them in lines of 80 columns; all but the first are indented."""
    lines = [""]
    for i, part in enumerate(parts):
        text = part if i == len(parts) - 1 else f"{part},"
        if lines[-1] and len(lines[-1]) + 1 + len(text) > 80:
            lines.append(f"  {text}")
        else:
            lines[-1] += f" {text}" if lines[-1] else text
    return lines


def _parts(progress: Progress) -> list[str]:
    """How far it is, with what was learned of it."""
    parts = [
        f"{progress.steps:,} of {progress.total_steps:,} steps ({progress.part:.0%})",
        f"{number(progress.steps_per_second or None)} steps/s",
        f"{progress.episodes:,} {'episode' if progress.episodes == 1 else 'episodes'}",
    ]
    if progress.return_mean is not None:
        parts.append(f"return {number(progress.return_mean)}")
    if progress.length_mean is not None:
        parts.append(f"length {number(progress.length_mean)}")
    parts += [f"{name} {number(value)}" for name, value in progress.metrics.items()]
    if progress.left:
        parts.append(f"{duration(progress.left)} left")
    return parts


def _seed_line(progress: Progress) -> str:
    """One of several seeds: short enough to stand under each other."""
    parts = [
        f"seed {progress.seed}: {progress.steps:,} of {short_number(progress.total_steps)} steps "
        f"({progress.part:.0%})",
        f"{number(progress.steps_per_second or None)} steps/s",
        f"return {number(progress.return_mean)}",
    ]
    if progress.left:
        parts.append(f"{duration(progress.left)} left")
    return ", ".join(parts)


def _wrapped(text: str, columns: int) -> list[str]:
    """A text in lines, none of which ends between a number and its unit, or within a path."""
    kept = re.sub(r"(\d) (bytes|[KMG]iB)", "\\1\N{NO-BREAK SPACE}\\2", text)
    columns = max(columns, 10)
    lines = textwrap.wrap(kept, columns, break_on_hyphens=False, break_long_words=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines] or [""]
