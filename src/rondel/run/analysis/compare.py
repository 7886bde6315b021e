"""Runs side by side: those that differ by their seed alone are one group, with an interval.

After Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice,
arXiv 2108.13264: there are intervals over seeds (`interval`), and the middle can be the
interquartile mean, which a single lucky or unlucky seed moves less than the mean.
"""

from __future__ import annotations

import json
import logging
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rondel.envs.registry import id_without_world
from rondel.errors import RondelError
from rondel.run.analysis.interval import FEWEST_IQM, interval
from rondel.run.storage import metrics_file
from rondel.run.storage.locate import refuse_file

# seeds of each group that a winner needs: of fewer, all may by chance be of one kind where some
# learn and some don't, and then no interval covers the middle of both kinds
_FEWEST, _FEWEST_IQM = 5, 10
_SHARED = "\\*"  # beside speeds of runs that had a part of the machine only
_METRICS = "metrics.jsonl"
_log = logging.getLogger("rondel")
_LARGEST = 1 << 20  # bytes of a config.json: none of ours is near it
# what of a run's options makes another kind of run of it; the others say on whose machines it ran
_OPTIONS = (
    *("plan", "lag", "free", "on", "lanes", "block"),
    *("normalise_observations", "scale_rewards"),
)


class Curve(NamedTuple):
    """What one run's folder says of its learning: mean returns of its last 100 episodes."""

    path: Path
    seed: int
    facts: dict[str, Any]  # what it is, but for its seed
    steps: np.ndarray  # [n], growing
    seconds: np.ndarray  # [n], since its first report: what is compiled once is not learning
    returns: np.ndarray  # [n]
    beside: int  # seeds that trained at the same time on the same machine, itself among them

    @property
    def task(self) -> str:
        return id_without_world(self.facts["env"])

    @property
    def speed(self) -> float:
        """Steps per second, from the first row to the last."""
        spent = self.seconds[-1] - self.seconds[0]
        return float((self.steps[-1] - self.steps[0]) / spent) if spent > 0 else float("nan")


class Group(NamedTuple):
    """Runs that differ by their seed alone."""

    label: str
    curves: tuple[Curve, ...]

    @property
    def beside(self) -> int:
        """The most seeds that trained at the same time on the same machine."""
        return max(curve.beside for curve in self.curves)

    def reached(self, against: str) -> float:
        """How far all of its curves go."""
        return float(min(getattr(curve, against)[-1] for curve in self.curves))

    def at(self, places: np.ndarray, against: str = "steps") -> np.ndarray:
        """[places, seeds]: each curve's return there, between two of its rows in a straight line.

        Rounds of seeds end a few steps apart: the row before a place may be a whole round old.
        """
        columns = [np.interp(places, getattr(c, against), c.returns) for c in self.curves]
        return np.stack(columns, -1)


class Row(NamedTuple):
    """A group's line in a table: the middle of its seeds, and in 95 of 100 cases that of all."""

    label: str
    seeds: int
    middle: float
    low: float
    high: float
    speed: float
    beside: int  # seeds that trained at the same time on the same machine, itself among them


@dataclass(frozen=True)
class Comparison:
    """Groups of runs, by task. As a string it is a table in Markdown for each task."""

    tasks: dict[str, list[Group]]
    iqm: bool = False

    def rows(self, task: str) -> list[Row]:
        """The groups of a task, best first, after as many steps as all of them have."""
        groups = self.tasks[task]
        place = np.array([min(group.reached("steps") for group in groups)])
        rows = []
        for group in groups:
            middle, low, high = (float(x[0]) for x in interval(group.at(place), self.iqm))
            speed = float(np.median([curve.speed for curve in group.curves]))
            about = (middle, low, high, speed, group.beside)
            rows.append(Row(group.label, len(group.curves), *about))
        return sorted(rows, key=lambda row: -row.middle)

    def verdict(self, task: str) -> str:
        """Who is ahead, if the intervals say so."""
        best, *others = self.rows(task)
        if not others:
            return "There is nothing to compare it with."
        fewest = _FEWEST_IQM if self.iqm else _FEWEST
        if few := [_quoted(row.label) for row in (best, *others) if row.seeds < fewest]:
            return (
                f"Too few seeds to name a winner: {fewest} or more each would do, and "
                f"{', '.join(few)} {'has' if len(few) == 1 else 'have'} fewer."
            )
        if best.low > max(row.high for row in others):
            return f"**{_quoted(best.label)}** is ahead: its interval lies above all others."
        return "No winner: the intervals overlap."

    def __str__(self) -> str:
        return "\n\n".join(self._table(task) for task in self.tasks)

    def _table(self, task: str) -> str:
        steps = min(group.reached("steps") for group in self.tasks[task])
        lines = [
            f"{task}, {self.middle(task)} over seeds of the return after {steps:,.0f} steps:",
            "",
            "| run | seeds | return | 95 % interval | steps/s |",
            "|---|---|---|---|---|",
        ]
        rows = self.rows(task)
        for row in rows:
            known = f"{_short(row.low)} to {_short(row.high)}" if row.seeds > 1 else "one seed"
            speed = _short(row.speed) if row.speed == row.speed else ""
            speed += _SHARED if speed and row.beside > 1 else ""
            label = _quoted(row.label).replace("|", "\\|")
            lines.append(f"| {label} | {row.seeds} | {_short(row.middle)} | {known} | {speed} |")
        if most := max((row.beside for row in rows if row.beside > 1), default=0):
            shared = f"with up to {most} seeds at a time on one machine"
            lines += ["", f"{_SHARED} {shared}: no single run's speed."]
        return "\n".join([*lines, "", self.verdict(task)])

    def middle(self, task: str) -> str:
        """What the middle of the seeds is called."""
        if not self.iqm:
            return "mean"
        few = any(len(group.curves) < FEWEST_IQM for group in self.tasks[task])
        return "interquartile mean" + (f" (of fewer than {FEWEST_IQM} the mean)" if few else "")


def _quoted(label: str) -> str:
    """A label whose stars are stars in Markdown too, and whose commas are its own in a list."""
    return f"`{label}`" if set(label) & set("*_|,") else label


def _short(number: float) -> str:
    """Four digits, or all that stand before the point."""
    return f"{number:,.0f}" if abs(number) >= 1_000 else f"{number:.4g}"


def compare(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, iqm: bool = False
) -> Comparison:
    """Read the folders of runs, or folders that hold some, and put them side by side.

    >>> print(rondel.compare(["runs/a", "runs/b"]))
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not given:
        raise RondelError("Nothing to compare: name the folders of some runs.")
    tasks: dict[str, list[Curve]] = defaultdict(list)
    for curve in _curves(Path(path) for path in given):
        tasks[curve.task].append(curve)
    return Comparison({task: grouped(curves) for task, curves in tasks.items()}, iqm)


def grouped(curves: Iterable[Curve]) -> list[Group]:
    """Curves of one task by what they are, each group with a name that tells it from the others."""
    alike: dict[str, dict[int, Curve]] = defaultdict(dict)
    for curve in curves:
        same = alike[json.dumps(curve.facts, sort_keys=True)]
        if curve.seed in same:
            raise RondelError(
                f"{same[curve.seed].path} and {curve.path} are the same run with the same seed, "
                "which counts once: leave one of them out."
            )
        same[curve.seed] = curve
    groups = [tuple(same.values()) for same in alike.values()]
    labels = _labels([group[0].facts for group in groups])
    return [Group(label, group) for label, group in zip(labels, groups, strict=True)]


def _labels(facts: list[dict[str, Any]]) -> list[str]:
    """The algorithm of each, and as much more as tells it from the others."""
    labels = [str(each["algorithm"]) for each in facts]
    for name in dict.fromkeys(name for each in facts for name in each):
        alike = defaultdict(list)
        for i, label in enumerate(labels):
            alike[label].append(i)
        for same in alike.values():
            if len({json.dumps(facts[i].get(name)) for i in same}) > 1:
                for i in same:
                    labels[i] += f", {_said(name, facts[i].get(name))}"
    return labels


def _said(name: str, value: Any) -> str:
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"not {words}"
    return str(value) if name in ("env", "plan") else f"{words} {value}"


def _curves(paths: Iterable[Path]) -> Iterable[Curve]:
    """The run that each path holds, or all runs and seeds of runs in the folders below it.

    Of several in a folder those that can't be read, or have nothing to show yet, are left out.
    """
    for path in paths:
        below = [*path.glob("*"), *path.glob("*/seed-*")]
        inside = [path] if _is_run(path) else sorted(p for p in below if _is_run(p))
        refuse_file(path)
        if not path.is_dir():
            raise RondelError(f"{path}: no such folder. A run's folder, or one of runs, would do.")
        if not inside:
            raise RondelError(f"{path} holds no run: it has no config.json and metrics.jsonl.")
        yield from [_curve(path)] if inside == [path] else _readable(inside)


def _readable(paths: Sequence[Path]) -> list[Curve]:
    """Those that can be read; it says which can't. There is one at the least."""
    curves, failed = [], []
    for path in paths:
        try:
            curves.append(_curve(path))
        except RondelError as error:
            failed.append(error)
    if not curves:
        raise failed[0]
    for reason in failed:
        _log.warning("Left out: %s", reason)
    return curves


def _is_run(path: Path) -> bool:
    return (path / "config.json").is_file() and (path / _METRICS).is_file()


def _curve(path: Path) -> Curve:
    about = _about(path / "config.json")
    names = ("steps", "seconds", "return_mean")
    rows = [
        [metrics_file.number(row, name) for name in names]
        for row in metrics_file.read(path / _METRICS)
    ]
    known = [row for row in rows if None not in row]
    if not known:
        raise RondelError(f"{path} has no episode that ended yet: train it for longer.")
    began = min(seconds for _, seconds, _ in rows if seconds is not None)
    steps, seconds, returns = np.array(known, float).T
    seconds = np.maximum.accumulate(seconds) - began
    config = about["config"] if isinstance(about["config"], dict) else {}
    options = about["options"] if isinstance(about["options"], dict) else {}
    chosen = {name: options.get(name) for name in _OPTIONS}
    named = {name: about[name] for name in ("algorithm", "env")}
    facts = named | chosen | config | named  # whatever a stranger's config calls so
    beside = about.get("at_a_time")
    beside = beside if isinstance(beside, int) and beside > 0 else 1
    return Curve(path, about["seed"], facts, steps, seconds, returns, beside)


def _about(path: Path) -> dict[str, Any]:
    """A run's config.json; anyone may have written it."""
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError
        about = json.loads(path.read_text())
        json.dumps(about, ensure_ascii=False).encode()  # half a character can't be shown
        kinds = {"algorithm": str, "env": str, "seed": int, "config": object, "options": object}
        if not all(isinstance(about[name], kind) for name, kind in kinds.items()):
            raise ValueError
    except OSError as error:
        raise RondelError(f"{path} can't be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RondelError(f"{path} does not describe a run of Rondel.") from None
    return dict(about)
