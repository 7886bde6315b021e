"""What is shown of several seeds while they train, and told of them at the end."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rondel.formatting import plural
from rondel.run.analysis.interval import interval
from rondel.run.display.display import Display, Progress, Silent
from rondel.run.preflight.memory_estimate import MemoryEstimate
from rondel.run.session.run import Run
from rondel.run.setup.prepare import Setup
from rondel.run.training import train_loop


class SeedDisplay:
    """One display for all seeds, if there is any."""

    def __init__(
        self, display: Display | None, path: Path, setup: Setup, seeds: Sequence[int]
    ) -> None:
        self._display, self._path = display or Silent(), path
        self._setup, self._seeds = setup if display else None, seeds
        self._began = False
        self._turn = threading.Lock()

    def fitting(self, rings: int) -> tuple[MemoryEstimate, int] | None:
        """What so many of them take of memory, where someone is shown it."""
        return train_loop.estimate_memory(self._setup, rings) if self._setup else None

    def begin(self, rows: list[tuple[str, str]], how: str) -> None:
        """What is said before the first of them, once."""
        with self._turn:
            if self._began or not rows:
                return
            self._began = True
            said = [(label, text) for label, text in rows if label not in ("until", "folder")]
            until = dict(rows)["until"].rpartition(", seed ")[0]
            seeds = f"{_listed(self._seeds)}, {how}"
            said += [("until", until), ("seeds", seeds), ("folder", str(self._path))]
            self._display.start(said)

    def update(self, seed: int, progress: Progress) -> None:
        with self._turn:
            self._display.update(progress._replace(seed=seed))

    def note(self, seed: int, message: str) -> None:
        self.say(f"seed {seed}: {message}")

    def say(self, message: str) -> None:
        """Of all of them."""
        with self._turn:
            self._display.note(message)

    def stop(self, message: str) -> None:
        self._display.stop(message)


class SingleSeedDisplay:
    """The display of one of them."""

    def __init__(self, shown: SeedDisplay, seed: int, how: str) -> None:
        self._shown, self._seed, self._how = shown, seed, how

    def start(self, summary: list[tuple[str, str]]) -> None:
        self._shown.begin(summary, self._how)

    def update(self, progress: Progress) -> None:
        self._shown.update(self._seed, progress)

    def note(self, message: str) -> None:
        self._shown.note(self._seed, message)

    def stop(self, message: str) -> None:
        """The others may go on."""


def _listed(seeds: Sequence[int]) -> str:
    many = len(seeds) > 8
    return f"{seeds[0]} to {seeds[-1]}" if many else ", ".join(map(str, seeds))


def result(path: Path, runs: Sequence[Run], seconds: float) -> dict[str, Any]:
    """What `--json` prints: means over seeds with their intervals, then each seed's own."""
    results = [run.result for run in runs]
    told: dict[str, Any] = {name: results[0][name] for name in ("algorithm", "env")}
    told |= {"seeds": len(runs), "at_a_time": max(run.at_a_time for run in runs)}
    told |= {"steps": sum(result["steps"] for result in results)}
    for name in ("return_mean", "eval_return"):
        known = [result[name] for result in results if result[name] is not None]
        told |= dict.fromkeys((name, f"{name}_low", f"{name}_high"))
        if len(known) == len(runs):
            middle = interval(np.array([known]), iqm=False)
            told |= dict(
                zip(
                    (name, f"{name}_low", f"{name}_high"), map(float, np.ravel(middle)), strict=True
                )
            )
    return told | {"seconds": round(seconds, 3), "path": str(path), "runs": results}


def ending(result: dict[str, Any]) -> str:
    """What all seeds have come to, as `result` has it: a line for each, then their means."""
    lines, seeds = [], result["seeds"]
    for run in result["runs"]:
        lines.append(
            f"seed {run['seed']}: {run['steps']:,} steps, {_scores(run)}".removesuffix(", ")
        )
    for name, word in _WORDS.items():
        if result[name] is not None:
            low, high = result[f"{name}_low"], result[f"{name}_high"]
            mean = f"{word}, mean over seeds: {result[name]:.1f}"
            known = f", 95 % interval {low:.1f} to {high:.1f}" if seeds > 1 else ""
            lines.append(mean + known)
    lines.append(f"Done: {plural(seeds, 'seed')} in {result['seconds']:.1f} s")
    lines.append(f"Each is a run in {result['path']}")
    return "\n".join(lines)


_WORDS = {"return_mean": "return", "eval_return": "greedy"}


def _scores(result: dict[str, Any]) -> str:
    said = [
        f"{word} {result[name]:.1f}" for name, word in _WORDS.items() if result[name] is not None
    ]
    return ", ".join(said)
