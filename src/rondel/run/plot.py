"""Learning curves of several runs in one picture: the middle of their seeds, with an interval."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rondel.errors import RondelError
from rondel.run import picture
from rondel.run.compare import Comparison, Group, compare
from rondel.run.files import refuse_to_replace
from rondel.run.interval import interval

AGAINST = {"steps": ("steps",), "seconds": ("seconds",), "both": ("steps", "seconds")}
_ACROSS = {"steps": "steps", "seconds": "seconds since the first report"}
_PLACES = 200
_BAND = "95\N{NO-BREAK SPACE}% interval"
_HIGH = 44  # characters beside a panel
CURVES = "curves.png"
# told apart by people who see colours otherwise too (Okabe and Ito)
_INKS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")


def plot(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str] = CURVES,
    *,
    against: str = "both",
    iqm: bool = False,
    overwrite: bool = False,
) -> Path:
    """Draw the runs in these folders: a row of panels a task, a line a group of seeds.

    It is a PNG. A file that is there stays, but for `overwrite`, and but for an earlier curves.png.

    >>> rondel.plot(["runs/a", "runs/b"], "curves.png", against="steps")
    """
    if against not in AGAINST:
        raise RondelError(f"against={against!r}: {', '.join(AGAINST)} would work.")
    if Path(out).suffix.lower() != ".png":
        raise RondelError(f"{out} can't be drawn: it is a PNG, so {Path(out).stem}.png would work.")
    refuse_to_replace(Path(out), overwrite or str(out) == CURVES)
    return draw(compare(paths, iqm=iqm), Path(out), AGAINST[against])


def draw(comparison: Comparison, path: Path, against: Sequence[str] = ("steps",)) -> Path:
    # slow to import, and not through pyplot, which would look for a screen
    from matplotlib.figure import Figure

    tasks = comparison.tasks
    size = (6.4 * len(against), 4.2 * len(tasks))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(tasks), len(against), squeeze=False)
    for row, (task, groups) in zip(panels, tasks.items(), strict=True):
        for axes, kind in zip(row, against, strict=True):
            picture.dress(axes, task, _ACROSS[kind])
            if any(len(group.curves) > 1 for group in groups):
                words = f"return, {comparison.middle(task)} of seeds with {_BAND}"
                axes.set_ylabel(textwrap.fill(words, _HIGH), color=picture.GREY)
            for group, ink in zip(groups, _INKS * len(groups), strict=False):
                _line(axes, group, kind, comparison.iqm, ink)
            axes.set_xlim(left=0)  # when all lines are there: it ends where the longest does
        if len(groups) > 1:
            row[0].legend(frameon=False, labelcolor=picture.GREY)
    return picture.save(figure, path)


def _line(axes: Any, group: Group, against: str, iqm: bool, ink: str) -> None:
    """As far as all seeds of the group go: beyond it the middle would be of other seeds."""
    begins = max(float(getattr(curve, against)[0]) for curve in group.curves)
    places = np.linspace(min(begins, group.reached(against)), group.reached(against), _PLACES)
    middle, low, high = interval(group.at(places, against), iqm)
    seeds = f" ({len(group.curves)} seeds)" if len(group.curves) > 1 else ""
    label = (group.label + seeds).replace("$", r"\$")
    axes.plot(places, middle, color=ink, linewidth=2, label=label)
    if len(group.curves) > 1:
        axes.fill_between(places, low, high, color=ink, alpha=0.2, linewidth=0)
