"""A run's learning curve as a picture: return against steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rondel.run.analysis import plot_style
from rondel.run.storage import metrics_file

INK = "#17617c"


def draw_curve(folder: Path, title: str) -> Path:
    """Read the metrics.jsonl of a run's folder and write curve.png beside it.

    Where the reports are many, a thick line goes through the middle of them.
    """
    # slow to import, and not through pyplot, which would look for a screen
    from matplotlib.figure import Figure

    folder = Path(folder)
    rows = metrics_file.read(folder / "metrics.jsonl")
    points = [
        (metrics_file.number(row, "steps"), metrics_file.number(row, "return_mean")) for row in rows
    ]
    known = [point for point in points if None not in point]
    steps, returns = np.array(known, float).reshape(-1, 2).T

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    plot_style.apply_style(axes, title, "steps")
    if known:
        many = len(known) >= 60
        if many:
            axes.plot(steps, returns, color=INK, alpha=0.3, linewidth=0.8)
        line = _smoothed(returns) if many else returns
        axes.plot(steps, line, color=INK, linewidth=2, marker="" if many else ".")
        axes.annotate(
            f"{line[-1]:,.4g}",
            (steps[-1], line[-1]),
            (8, 0),
            textcoords="offset points",
            va="center",
            color=INK,
        )
        axes.set_xlim(left=0)
    else:
        axes.set(xticks=[], yticks=[])
        note, middle = "no episode has ended yet", (0.5, 0.5)
        axes.annotate(note, middle, xycoords="axes fraction", ha="center", color=plot_style.GREY)

    return plot_style.save(figure, folder / "curve.png")


def _smoothed(values: np.ndarray) -> np.ndarray:
    """The mean of each value and its neighbours, a twentieth of all; fewer near the ends."""
    half = max(len(values) // 40, 1)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    place = np.arange(len(values))
    first, last = np.maximum(place - half, 0), np.minimum(place + half + 1, len(values))
    return np.asarray((sums[last] - sums[first]) / (last - first))
