"""Displays of a run: a live panel in a terminal, plain lines elsewhere.

They write to the given stream, by default stderr: stdout is for the result.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rondel.formatting import duration, number, short_number, wrapped
from rondel.run.display import panel, utilisation
from rondel.run.display.round_record import RoundRecord

_MINUTE = 60.0  # seconds after which a log repeats what bounds the run


class Display:
    """Shows nothing: what does show something overrides these."""

    def start(self, summary: list[tuple[str, str]]) -> None:
        """Show what will run, as rows of (label, text)."""

    def update(self, record: RoundRecord) -> None:
        """Show a round; displays limit their own rate, so each round may be passed."""

    def note(self, message: str) -> None:
        """Show a message while the run goes on."""

    def stop(self, message: str) -> None:
        """Show the last record, then how it ended. Also right after an exception."""


def choose(stream: TextIO | None = None) -> Display:
    """The display for a stream: a panel if it is a terminal that can draw it, else lines."""
    stream = stream or sys.stderr
    encoding = getattr(stream, "encoding", None) or "utf-8"
    drawable = stream.isatty() and os.environ.get("TERM") != "dumb"
    drawable = drawable and encoding.lower().startswith("utf")  # it has more than ASCII in it
    return Panel(stream) if drawable else Lines(stream)


class Unbroken(Display):
    """A display that turns silent when its stream fails: a full disk must not end the run."""

    def __init__(self, inner: Display) -> None:
        self._inner = inner

    def start(self, summary: list[tuple[str, str]]) -> None:
        self._try(self._inner.start, summary)

    def update(self, record: RoundRecord) -> None:
        self._try(self._inner.update, record)

    def note(self, message: str) -> None:
        self._try(self._inner.note, message)

    def stop(self, message: str) -> None:
        self._try(self._inner.stop, message)

    def _try(self, show: Callable[[Any], None], what: Any) -> None:
        try:
            show(what)
        except OSError:
            self._inner = Display()


class Lines(Display):
    """Plain lines for logs and pipes: at most one every few seconds, without control characters.

    What bounds the run is shown when it is first known, when it changes, and every minute.
    """

    def __init__(self, stream: TextIO | None = None, every: float = 5.0) -> None:
        self._stream = stream or sys.stderr
        self._every = every
        self._shown: dict[int | None, float] = {}  # seconds of the run at its last line, by seed
        self._waiting: dict[int | None, RoundRecord] = {}
        self._bound, self._bound_at = "", -math.inf  # the bottleneck last shown, and when

    def start(self, summary: list[tuple[str, str]]) -> None:
        indent = max((len(label) for label, _ in summary), default=0) + 2
        for label, text in summary:
            self._print(*wrapped(text, 80, f"{label:{indent}}", " " * indent))

    def update(self, record: RoundRecord) -> None:
        self._waiting[record.seed] = record
        if record.seconds - self._shown.get(record.seed, -math.inf) >= self._every:
            self._show(record)

    def note(self, message: str) -> None:
        self._print(*wrapped(message, 80, others="  "))

    def stop(self, message: str) -> None:
        for record in list(self._waiting.values()):
            self._show(record)
        for i, line in enumerate(message.splitlines()):
            # the first may be looked for by a program, and rows of a table stay whole
            whole = i == 0 or "  " in line
            self._print(*([line] if whole else wrapped(line)))

    def _show(self, record: RoundRecord) -> None:
        self._print_parts(_parts(record))
        self._shown[record.seed] = record.seconds
        del self._waiting[record.seed]
        seen = record.utilisation if record.seed is None else None
        if seen and (seen.bound != self._bound or record.seconds - self._bound_at >= _MINUTE):
            self._print_parts(utilisation.describe(seen))
            self._bound, self._bound_at = seen.bound, record.seconds

    def _print_parts(self, parts: list[str]) -> None:
        """Print with commas between the parts, each whole."""
        whole = ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in parts)
        self._print(*wrapped(whole, others="  "))

    def _print(self, *lines: str) -> None:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        for line in filter(None, lines):
            text = "".join(c if c.isprintable() else " " for c in line)
            self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        self._stream.flush()


class Panel(Display):
    """A live panel: progress, the curve of the return, figures, and what bounds the run."""

    def __init__(self, stream: TextIO | None = None, every: float = 0.5) -> None:
        self._console = Console(file=stream or sys.stderr, highlight=False)
        self._every = every
        self._shown = -math.inf
        self._waiting: RoundRecord | None = None
        self._curve = [math.nan] * panel.CURVE  # the return by part of the run
        self._seeds: dict[int, RoundRecord] = {}
        self._live: Live | None = None

    def start(self, summary: list[tuple[str, str]]) -> None:
        rows = Table.grid(padding=(0, 2))
        rows.add_column(style="dim", no_wrap=True)
        labels = max((len(label) for label, _ in summary), default=0)
        for label, text in summary:
            rows.add_row(label, Text("\n".join(wrapped(text, self._console.width - labels - 6))))
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

    def update(self, record: RoundRecord) -> None:
        self._waiting = record
        if record.return_mean is not None and math.isfinite(record.return_mean):
            self._curve[int(record.part * (len(self._curve) - 1))] = record.return_mean
        if record.seed is not None:
            self._seeds[record.seed] = record
        # a seed that comes after another has a clock of its own
        if abs(record.seconds - self._shown) >= self._every:
            self._show(record)

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

    def _show(self, record: RoundRecord) -> None:
        if self._live:
            # room for the ^C that a terminal echoes: a wrapped line would break the panel
            width = min(self._console.width, 80) - 4
            seeds = [self._seeds[seed] for seed in sorted(self._seeds)]
            if seeds:
                drawn = panel.of_seeds(seeds, width)
            else:
                drawn = panel.of_run(record, self._curve, width)
            self._live.update(drawn, refresh=True)
        self._shown, self._waiting = record.seconds, None


def _parts(record: RoundRecord) -> list[str]:
    """The figures of a log line, as far as they are known; of one of several seeds only a few."""
    alone, total = record.seed is None, record.goal.total_steps
    seed, goal = ("", f"{total:,}") if alone else (f"seed {record.seed}: ", short_number(total))
    parts = [f"{seed}{record.steps:,} of {goal} steps ({record.part:.0%})"]
    if record.steps_per_second:
        parts.append(f"{number(record.steps_per_second)} steps/s")
    if alone:
        parts.append(f"{record.episodes:,} {'episode' if record.episodes == 1 else 'episodes'}")
    if record.return_mean is not None:
        parts.append(f"return {number(record.return_mean)}")
    if alone and record.length_mean is not None:
        parts.append(f"length {number(record.length_mean)}")
    if alone:
        parts += [f"{name} {number(value)}" for name, value in record.metrics.items()]
    if record.seconds_left:
        parts.append(f"{duration(record.seconds_left)} left")
    return parts
