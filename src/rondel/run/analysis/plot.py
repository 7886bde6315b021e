"""Learning curves of several runs in one picture, with intervals over seeds."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rondel.errors import RondelError
from rondel.formatting import join_words
from rondel.run.analysis import learning_curve
from rondel.run.analysis.compare import Comparison, Group, compare
from rondel.run.analysis.interval import interval
from rondel.run.analysis.learning_curve import GREY
from rondel.run.storage.atomic_files import refuse_to_replace

AGAINST = {"steps": ("steps",), "seconds": ("seconds",), "both": ("steps", "seconds")}
_ACROSS = {"steps": "steps", "seconds": "seconds since the first report"}
_PLACES = 200
_BAND = "95\N{NO-BREAK SPACE}% interval"
_HIGH = 44  # characters beside a panel
_AN_INCH, _SAMPLE, _LINE = 11, 7, 0.22  # characters an inch, those of a line's sample; inches a row
_SHARED = "seeds shared the machine: one alone is faster"
CURVES = "curves.png"
# safe for colour-blind readers (Okabe and Ito)
_INKS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")


def plot(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] = CURVES,
    *,
    against: str = "both",
    iqm: bool = False,
    overwrite: bool = False,
) -> Path:
    """Draw the runs in these folders as a PNG: a row of panels per task, a line per group of seeds.

    Evaluations are dashed lines. A file that exists is kept without `overwrite`, except an earlier
    curves.png.

    >>> rondel.plot(["runs/a", "runs/b"], "curves.png", against="steps")
    """
    if against not in AGAINST:
        raise RondelError(f"against must be {join_words(AGAINST, 'or')}, got {against!r}.")
    if Path(out).suffix.lower() != ".png":
        raise RondelError(f"The picture is a PNG: {out} must end in .png.")
    refuse_to_replace(Path(out), overwrite or str(out) == CURVES)
    return draw(compare(paths, iqm=iqm), Path(out), AGAINST[against])


def draw(comparison: Comparison, path: Path, against: Sequence[str] = ("steps",)) -> Path:
    """Draw a comparison, a panel for each of `against` (steps, seconds)."""
    # slow to import, and not through pyplot, which would look for a screen
    from matplotlib.figure import Figure

    tasks, wide = comparison.tasks, 6.4 * len(against)
    keys = [_key(groups, "seconds" in against, wide) for groups in tasks.values()]
    high = [4.2 + key.high for key in keys]
    figure = Figure(figsize=(wide, sum(high)), layout="constrained")
    rows = figure.subfigures(len(tasks), squeeze=False, height_ratios=high)[:, 0]
    for row, key, task in zip(rows, keys, tasks, strict=True):
        _panels(row, key, task, comparison, against)
    return learning_curve.save(figure, path)


def _panels(row: Any, key: _Key, task: str, comparison: Comparison, against: Sequence[str]) -> None:
    """The panels of a task. All show the same returns, so they share that axis and the legend."""
    groups = comparison.tasks[task]
    panels = row.subplots(1, len(against), squeeze=False, sharey=True)[0]
    for axes, kind in zip(panels, against, strict=True):
        learning_curve.apply_style(axes, task, _across(groups, kind))
        for group, label, ink in zip(groups, key.labels, _INKS * len(groups), strict=False):
            _line(axes, group, label, kind, comparison.iqm, ink)
        axes.set_xlim(left=0)  # when all lines are there: it ends where the longest does
        axes.set_ylabel("")
    many = any(len(group.curves) > 1 for group in groups)
    words = "return" + (f", {comparison.middle(task)} of seeds with {_BAND}" if many else "")
    words += "; dashed: evaluations" if any(group.evaluations for group in groups) else ""
    panels[0].set_ylabel(textwrap.fill(words, _HIGH), color=GREY)
    if len(groups) > 1:
        lines, place = panels[0].get_legend_handles_labels(), "outside lower center"
        row.legend(*lines, loc=place, ncols=key.columns, frameon=False, labelcolor=GREY)


class _Key(NamedTuple):
    """The legend below the panels of a task."""

    labels: list[str]
    columns: int
    high: float  # inches


def _key(groups: Sequence[Group], timed: bool, wide: float) -> _Key:
    """The names of groups, wrapped, in as many columns as fit."""
    width, labels = int(wide * _AN_INCH), []
    for group in groups:
        seeds = f" ({len(group.curves)} seeds)" if len(group.curves) > 1 else ""
        star = "\N{NO-BREAK SPACE}*" if timed and group.beside > 1 else ""
        name = textwrap.fill(group.label, width - 3 * _SAMPLE, max_lines=3, placeholder="…")
        labels.append(name + seeds + star)
    longest = max(len(line) for label in labels for line in label.split("\n"))
    columns = min(max(width // (longest + _SAMPLE), 1), len(labels))
    lines = sum(label.count("\n") + 1 for label in labels)
    high = _LINE * math.ceil(lines / columns) if len(labels) > 1 else 0.0
    return _Key([label.replace("$", r"\$") for label in labels], columns, high)


def _across(groups: Sequence[Group], kind: str) -> str:
    """The label of the horizontal axis, with a note where seeds shared the machine."""
    if kind != "seconds" or not any(group.beside > 1 for group in groups):
        return _ACROSS[kind]
    return f"{_ACROSS[kind]}\n{'* ' if len(groups) > 1 else ''}{_SHARED}"


def _line(axes: Any, group: Group, label: str, against: str, iqm: bool, ink: str) -> None:
    """The middle and interval of a group; its evaluations dashed."""
    places, middle, low, high = _middle(group, against, iqm)
    axes.plot(places, middle, color=ink, linewidth=2, label=label)
    if len(group.curves) > 1:
        axes.fill_between(places, low, high, color=ink, alpha=0.2, linewidth=0)
    if played := group.evaluations:
        places, middle, *_ = _middle(played, against, iqm)
        axes.plot(places, middle, color=ink, linewidth=1.5, linestyle="--")


def _middle(group: Group, against: str, iqm: bool) -> tuple[np.ndarray, ...]:
    """Places, middle, low and high, as far as all seeds go: beyond it would be that of others."""
    begins = max(float(getattr(curve, against)[0]) for curve in group.curves)
    ends = group.reached(against)
    places = np.linspace(min(begins, ends), ends, _PLACES)
    return places, *interval(group.at(places, against), iqm)
