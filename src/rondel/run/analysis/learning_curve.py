"""The learning curve of a run as a picture, and the style of all pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rondel.run.storage import metrics_file
from rondel.run.storage.atomic_files import atomic_write, explain_failure

GREY, PALE = "#666666", "#e4e4e4"
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
    apply_style(axes, title, "steps")
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
            axes.legend(frameon=False, labelcolor=GREY)
    else:
        axes.set(xticks=[], yticks=[])
        note, middle = "no finished episode yet", (0.5, 0.5)
        axes.annotate(note, middle, xycoords="axes fraction", ha="center", color=GREY)

    return save(figure, folder / "curve.png")


def _smoothed(values: np.ndarray) -> np.ndarray:
    """The mean of each value with its neighbours, a twentieth of all values; fewer at the ends."""
    window = np.ones(2 * max(len(values) // 40, 1) + 1)
    return np.convolve(values, window, "same") / np.convolve(np.ones_like(values), window, "same")


def apply_style(axes: Any, title: str, across: str) -> None:
    """Make a plain panel of returns: few lines, grey labels."""
    from matplotlib.ticker import EngFormatter  # slow to import

    axes.set_title(title, loc="left", pad=14, fontsize=12, parse_math=False)
    axes.set_xlabel(across, color=GREY)
    axes.set_ylabel("return", color=GREY)
    if across == "steps":  # 50k, 1M
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.tick_params(length=0, pad=6, labelcolor=GREY)
    axes.spines[["left", "top", "right"]].set_visible(False)
    axes.spines["bottom"].set_color(GREY)
    axes.grid(axis="y", color=PALE)
    axes.set_axisbelow(True)


def save(figure: Any, path: Path) -> Path:
    """Write the picture atomically."""
    with explain_failure(f"The picture {path}"), atomic_write(path) as partial:
        figure.savefig(partial, format="png", dpi=150, bbox_inches="tight", pad_inches=0.2)
    return path
