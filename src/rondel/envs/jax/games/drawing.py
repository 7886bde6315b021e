"""Pictures of boards: stones in two colours, and a line through the winning ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rondel.envs.jax.drawing import BLUE, INK, PALE, RED, Canvas, Point


def draw(stones: np.ndarray, in_a_row: int) -> np.ndarray:
    """Draw `stones` [rows, columns, 2], the top row first: red's stones, then blue's.

    `in_a_row` of them win.
    """
    rows, columns, _ = stones.shape
    canvas = Canvas(-0.5, columns - 0.5, 0.5 - rows, 0.5, width=320)
    for row, column in np.ndindex(rows, columns):
        red, blue = stones[row, column]
        canvas.circle((column, -row), 0.4, RED if red else BLUE if blue else PALE)
    for start, end in _lines(stones, in_a_row):
        canvas.rod(start, end, 0.1, INK)
    return canvas.picture()


def _lines(stones: np.ndarray, length: int) -> Iterator[tuple[Point, Point]]:
    """The ends of winning lines."""
    rows, columns, _ = stones.shape
    for row, column in np.ndindex(rows, columns):
        for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
            line = [(row + i * down, column + i * right) for i in range(length)]
            last_row, last_column = line[-1]
            if last_row >= rows or not 0 <= last_column < columns:
                continue
            if stones[tuple(np.transpose(line))].all(axis=0).any():
                yield (column, -row), (last_column, -last_row)
