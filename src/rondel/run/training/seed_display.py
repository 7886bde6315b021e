"""The display of several seeds while they train, and their result at the end."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rondel.formatting import plural
from rondel.run.analysis.interval import interval
from rondel.run.display.display import Display
from rondel.run.display.round_record import RoundRecord
from rondel.run.session.run import Run

_SCORES = {"return_mean": "return", "eval_return": "greedy"}


class SeedDisplay(Display):
    """One display for all seeds, which may train in threads; its summary is shown once."""

    def __init__(self, display: Display, path: Path, seeds: Sequence[int], how: str) -> None:
        self._display, self._path, self._seeds, self._how = display, path, seeds, how
        self._seed: int | None = None  # the one whose messages these are
        self._lock, self._started = threading.Lock(), threading.Event()

    def of(self, seed: int) -> SeedDisplay:
        """This display, for the messages of one seed."""
        one = copy.copy(self)
        one._seed = seed
        return one

    def start(self, summary: list[tuple[str, str]]) -> None:
        """Show what will run: the summary of one seed, with all seeds in the place of its own."""
        with self._lock:
            if self._started.is_set() or not summary:
                return
            self._started.set()
            rows = [(label, text) for label, text in summary if label not in ("until", "folder")]
            until = dict(summary)["until"].rpartition(", seed ")[0]
            many = len(self._seeds) > 8
            ends = f"{self._seeds[0]} to {self._seeds[-1]}"
            seeds = f"{ends if many else ', '.join(map(str, self._seeds))}, {self._how}"
            self._display.start(
                [*rows, ("until", until), ("seeds", seeds), ("folder", str(self._path))]
            )

    def update(self, record: RoundRecord) -> None:
        with self._lock:
            self._display.update(record._replace(seed=self._seed))

    def note(self, message: str) -> None:
        with self._lock:
            self._display.note(message if self._seed is None else f"seed {self._seed}: {message}")

    def stop(self, message: str) -> None:
        """The other seeds may go on."""


def result(path: Path, runs: Sequence[Run], seconds: float) -> dict[str, Any]:
    """What `--json` prints: means over seeds with their intervals, then the results of the runs."""
    results = [run.result for run in runs]
    means: dict[str, Any] = {name: results[0][name] for name in ("algorithm", "env")}
    means |= {"seeds": len(runs), "at_a_time": max(run.at_a_time for run in runs)}
    means |= {"steps": sum(result["steps"] for result in results)}
    for name in _SCORES:
        scores = [result[name] for result in results if result[name] is not None]
        middle: Any = (None, None, None)
        if len(scores) == len(runs):
            middle = map(float, np.ravel(interval(np.array([scores]), iqm=False)))
        means |= zip((name, f"{name}_low", f"{name}_high"), middle, strict=True)
    return means | {"seconds": round(seconds, 3), "path": str(path), "runs": results}


def ending(result: dict[str, Any]) -> str:
    """The last lines of a training: one for each seed, then their means."""
    lines, seeds = [], result["seeds"]
    for run in result["runs"]:
        scores = [
            f", {word} {run[name]:.1f}" for name, word in _SCORES.items() if run[name] is not None
        ]
        lines.append(f"seed {run['seed']}: {run['steps']:,} steps{''.join(scores)}")
    for name, word in _SCORES.items():
        if result[name] is not None:
            low, high = result[f"{name}_low"], result[f"{name}_high"]
            mean = f"{word}, mean over seeds: {result[name]:.1f}"
            lines.append(mean + (f", 95 % interval {low:.1f} to {high:.1f}" if seeds > 1 else ""))
    lines.append(f"Done: {plural(seeds, 'seed')} in {result['seconds']:.1f} s")
    lines.append(f"Each is a run in {result['path']}")
    return "\n".join(lines)
