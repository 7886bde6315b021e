"""A canvas for pictures of tasks: lines, circles and polygons in the task's own units.

Pillow is imported when the first picture is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

Point: TypeAlias = tuple[float, float]

INK, PALE, RED, BLUE = "#333333", "#dddddd", "#d55e00", "#0072b2"
_FINER = 2  # drawn larger by this factor, then reduced, for smooth edges


class Canvas:
    """A white picture of left..right and bottom..top, y upwards, `width` pixels wide.

    >>> canvas = Canvas(-2, 2, -1, 1)
    >>> canvas.circle((0.5, 0.0), 0.1)
    >>> canvas.picture().shape
    (240, 480, 3)
    """

    def __init__(
        self, left: float, right: float, bottom: float, top: float, width: int = 480
    ) -> None:
        from PIL import Image, ImageDraw

        self._left, self._top = left, top
        self._scale = _FINER * width / (right - left)
        height = round(width * (top - bottom) / (right - left))
        self._image = Image.new("RGB", (_FINER * width, _FINER * height), "white")
        self._draw = ImageDraw.Draw(self._image)

    def line(self, points: Sequence[Point], colour: str = INK, width: float = 0.02) -> None:
        """Draw a line through all points, `width` wide in the task's units."""
        pixels = max(1, round(width * self._scale))
        self._draw.line(self._placed(points), colour, pixels, joint="curve")

    def polygon(self, corners: Sequence[Point], colour: str = INK) -> None:
        self._draw.polygon(self._placed(corners), colour)

    def circle(self, centre: Point, radius: float, colour: str = INK) -> None:
        ((x, y),) = self._placed([centre])
        r = radius * self._scale
        self._draw.ellipse((x - r, y - r, x + r, y + r), colour)

    def rod(self, start: Point, end: Point, width: float, colour: str = INK) -> None:
        """Draw a line with round ends."""
        self.line([start, end], colour, width)
        self.circle(start, width / 2, colour)
        self.circle(end, width / 2, colour)

    def picture(self) -> np.ndarray:
        """[height, width, 3] uint8."""
        return np.asarray(self._image.reduce(_FINER))

    def _placed(self, points: Sequence[Point]) -> list[Point]:
        return [
            ((float(x) - self._left) * self._scale, (self._top - float(y)) * self._scale)
            for x, y in points
        ]
