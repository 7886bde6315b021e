"""The style of Rondel's pictures, and writing them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rondel.errors import RondelError
from rondel.run.storage.atomic_files import atomic_write

GREY, PALE = "#666666", "#e4e4e4"


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
    try:
        with atomic_write(path) as partial:
            figure.savefig(partial, format="png", dpi=150, bbox_inches="tight", pad_inches=0.2)
    except OSError as error:
        raise RondelError(
            f"Writing the picture {path} failed: {error.strerror}. Make space there, or make the "
            "folder writable."
        ) from error
    return path
