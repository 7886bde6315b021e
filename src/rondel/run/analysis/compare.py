"""Tables that compare runs: those that differ only in their seed are one group.

After Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice,
arXiv 2108.13264: groups have confidence intervals over seeds (`interval`), and their middle can be
the interquartile mean, which one lucky or unlucky seed moves less than the mean.
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
from rondel.formatting import join_words
from rondel.run.analysis.interval import FEWEST_IQM, interval
from rondel.run.storage import metrics_file
from rondel.run.storage.locate import refuse_file

# seeds that each group needs for a winner: where only some seeds learn, fewer may all be of one
# kind by chance, and then no interval covers the middle of both kinds
_FEWEST, _FEWEST_IQM = 5, 10
_SHARED = "\\*"  # marks speeds of runs that shared the machine
_METRICS = "metrics.jsonl"
_log = logging.getLogger("rondel")
_LARGEST = 1 << 20  # bytes of a config.json, far beyond those that Rondel writes
# options that tell groups apart; the others only say on which machines a run ran
_OPTIONS = (
    *("plan", "lag", "free", "on", "lanes", "block"),
    *("normalise_observations", "scale_rewards"),
)


class Curve(NamedTuple):
    """The learning curve in a run's folder: mean returns of the last 100 episodes."""

    path: Path
    seed: int
    facts: dict[str, Any]  # what tells the run from others, except its seed
    steps: np.ndarray  # [n], growing
    seconds: np.ndarray  # [n], since the first report: compiling is not learning
    returns: np.ndarray  # [n]
    beside: int  # seeds that trained at the same time on the same machine, this one included
    evaluations: Curve | None = None  # the mean returns of its evaluations, if it had any

    @property
    def task(self) -> str:
        return id_without_world(self.facts["env"])

    @property
    def speed(self) -> float:
        """Steps per second, from the first row to the last."""
        spent = self.seconds[-1] - self.seconds[0]
        return float((self.steps[-1] - self.steps[0]) / spent) if spent > 0 else float("nan")


class Group(NamedTuple):
    """Runs that differ only in their seed."""

    label: str
    curves: tuple[Curve, ...]

    @property
    def beside(self) -> int:
        """The most seeds that trained at the same time on the same machine."""
        return max(curve.beside for curve in self.curves)

    def reached(self, against: str) -> float:
        """How far all curves go, in steps or seconds."""
        return float(min(getattr(curve, against)[-1] for curve in self.curves))

    def at(self, places: np.ndarray, against: str = "steps") -> np.ndarray:
        """[places, seeds]: the return of each curve there, interpolated between its rows.

        The rounds of different seeds end a few steps apart.
        """
        columns = [np.interp(places, getattr(c, against), c.returns) for c in self.curves]
        return np.stack(columns, -1)

    @property
    def evaluations(self) -> Group | None:
        """The curves of its evaluations, if all runs had some."""
        curves = tuple(curve.evaluations for curve in self.curves if curve.evaluations)
        return Group(self.label, curves) if len(curves) == len(self.curves) else None


class Row(NamedTuple):
    """A group's line in a table: the middle of its seeds with its 95 % interval."""

    label: str
    seeds: int
    middle: float
    low: float
    high: float
    speed: float
    beside: int  # the most seeds that trained at the same time on the same machine


@dataclass(frozen=True)
class Comparison:
    """Groups of runs by task. As a string it is a Markdown table for each task."""

    tasks: dict[str, list[Group]]
    iqm: bool = False

    def rows(self, task: str) -> list[Row]:
        """The groups of a task, best first, after the steps that all runs have."""
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
        """The group that is ahead, if the intervals allow to name one."""
        best, *others = self.rows(task)
        if not others:
            return "There is only one group."
        fewest = _FEWEST_IQM if self.iqm else _FEWEST
        if few := [_quoted(row.label) for row in (best, *others) if row.seeds < fewest]:
            names = join_words(few, "and")
            return f"Too few seeds to name a winner: {names} must have {fewest} or more."
        if best.low > max(row.high for row in others):
            return f"**{_quoted(best.label)}** is ahead: its interval lies above all others."
        return "No winner: the intervals overlap."

    def __str__(self) -> str:
        return "\n\n".join(self._table(task) for task in self.tasks)

    def _table(self, task: str) -> str:
        steps = min(group.reached("steps") for group in self.tasks[task])
        lines = [
            f"{task}: return after {steps:,.0f} steps, {self.middle(task)} over seeds",
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
            shared = f"Up to {most} seeds shared the machine: a single run is faster."
            lines += ["", f"{_SHARED} {shared}"]
        return "\n".join([*lines, "", self.verdict(task)])

    def middle(self, task: str) -> str:
        """The name of the middle of the seeds."""
        if not self.iqm:
            return "mean"
        few = any(len(group.curves) < FEWEST_IQM for group in self.tasks[task])
        return "interquartile mean" + (f" (the mean of fewer than {FEWEST_IQM})" if few else "")


def _quoted(label: str) -> str:
    """A label as Markdown code if it has characters that Markdown or a list would read."""
    return f"`{label}`" if set(label) & set("*_|,") else label


def _short(number: float) -> str:
    """Four digits, or all digits before the point."""
    return f"{number:,.0f}" if abs(number) >= 1_000 else f"{number:.4g}"


def compare(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, iqm: bool = False
) -> Comparison:
    """Compare the runs in some folders, or in folders below these.

    >>> print(rondel.compare(["runs/a", "runs/b"]))
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not given:
        raise RondelError("Nothing to compare. Name the folders of some runs.")
    tasks: dict[str, list[Curve]] = defaultdict(list)
    for curve in _curves(Path(path) for path in given):
        tasks[curve.task].append(curve)
    return Comparison({task: grouped(curves) for task, curves in tasks.items()}, iqm)


def grouped(curves: Iterable[Curve]) -> list[Group]:
    """Groups of the curves of one task, each labelled by what tells it from the others."""
    alike: dict[str, dict[int, Curve]] = defaultdict(dict)
    for curve in curves:
        same = alike[json.dumps(curve.facts, sort_keys=True)]
        if curve.seed in same:
            raise RondelError(
                f"{same[curve.seed].path} and {curve.path} are the same run with the same seed. "
                "Leave one of them out."
            )
        same[curve.seed] = curve
    groups = [tuple(same.values()) for same in alike.values()]
    labels = _labels([group[0].facts for group in groups])
    return [Group(label, group) for label, group in zip(labels, groups, strict=True)]


def _labels(facts: list[dict[str, Any]]) -> list[str]:
    """The algorithm of each group, and as many facts as tell it from the others."""
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
    """The curves of the runs in some folders, or in folders below these.

    A run below that can't be read, or has no finished episode yet, is left out.
    """
    for path in paths:
        below = [*path.glob("*"), *path.glob("*/seed-*")]
        inside = [path] if _is_run(path) else sorted(p for p in below if _is_run(p))
        refuse_file(path)
        if not path.is_dir():
            raise RondelError(
                f"{path} does not exist. Name the folder of a run, or of several runs."
            )
        if not inside:
            raise RondelError(f"{path} holds no run (a folder with config.json and {_METRICS}).")
        yield from [_curve(path)] if inside == [path] else _readable(inside)


def _readable(paths: Sequence[Path]) -> list[Curve]:
    """The curves that can be read, at least one; the others are logged."""
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
    about, rows = _about(path / "config.json"), metrics_file.read(path / _METRICS)
    known = metrics_file.columns(rows, "steps", "seconds", "return_mean")
    if not known[0].size:
        raise RondelError(f"{path} has no finished episode yet. Train it for longer.")
    began = metrics_file.columns(rows, "seconds")[0].min()
    config = about["config"] if isinstance(about["config"], dict) else {}
    options = about["options"] if isinstance(about["options"], dict) else {}
    chosen = {name: options.get(name) for name in _OPTIONS}
    named = {name: about[name] for name in ("algorithm", "env")}
    facts = named | chosen | config | named  # a stranger's config may have these names too
    beside = about.get("at_a_time")
    beside = beside if isinstance(beside, int) and beside > 0 else 1

    def curve(steps: np.ndarray, seconds: np.ndarray, returns: np.ndarray) -> Curve:
        since = np.maximum.accumulate(seconds) - began
        return Curve(path, about["seed"], facts, steps, since, returns, beside)

    played = metrics_file.columns(rows, "steps", "seconds", "eval_return")
    return curve(*known)._replace(evaluations=curve(*played) if played[0].size else None)


def _about(path: Path) -> dict[str, Any]:
    """A run's config.json, which anyone may have written."""
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
