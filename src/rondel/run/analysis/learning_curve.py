"""The learning curve of a run as a picture: return against steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rondel.run.analysis import plot_style
from rondel.run.storage import metrics_file

INK, EVALUATED = "#17617c", "#d55e00"
_MANY = 60  # rows, beyond which a line of their means is drawn


def draw_curve(folder: Path, title: str) -> Path:
    """Read the metrics.jsonl of a run's folder and write curve.png beside it.

    It shows the returns of training, smoothed if there are many, and those of evaluations.
    """
    # slow to import, and not through pyplot, which would look for a screen
    from matplotlib.figure import Figure

    folder = Path(folder)
    rows = metrics_file.read(folder / "metrics.jsonl")
    steps, returns = metrics_file.columns(rows, "steps", "return_mean")
    played = metrics_file.columns(rows, "steps", "eval_return")

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    plot_style.apply_style(axes, title, "steps")
    if steps.size:
        many = len(steps) >= _MANY
        if many:
            axes.plot(steps, returns, color=INK, alpha=0.3, linewidth=0.8)
        line = _smoothed(returns) if many else returns
        label, marker = "training, last 100 episodes", "" if many else "."
        axes.plot(steps, line, color=INK, linewidth=2, marker=marker, label=label)
        axes.annotate(
            f"{line[-1]:,.4g}",
            (steps[-1], line[-1]),
            (8, 0),
            textcoords="offset points",
            va="center",
            color=INK,
        )
        axes.set_xlim(left=0)
        if played.size:
            axes.plot(*played, color=EVALUATED, linewidth=1, marker="o", label="evaluations")
            axes.legend(frameon=False, labelcolor=plot_style.GREY)
    else:
        axes.set(xticks=[], yticks=[])
        note, middle = "no finished episode yet", (0.5, 0.5)
        axes.annotate(note, middle, xycoords="axes fraction", ha="center", color=plot_style.GREY)

    return plot_style.save(figure, folder / "curve.png")


def _smoothed(values: np.ndarray) -> np.ndarray:
    """The mean of each value with its neighbours, a twentieth of all values; fewer at the ends."""
    half = max(len(values) // 40, 1)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    place = np.arange(len(values))
    first, last = np.maximum(place - half, 0), np.minimum(place + half + 1, len(values))
    return np.asarray((sums[last] - sums[first]) / (last - first))
