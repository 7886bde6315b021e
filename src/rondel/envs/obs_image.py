"""Pictures from image observations, for videos of environments that draw none.

An image has two axes, or three with the channels in the smaller of the first and the last, as for
networks (`nets.images`). Of stacked frames the newest is shown.
"""

from __future__ import annotations

import colorsys
from typing import Any

import numpy as np

from rondel.envs.guard.sampling import leaves
from rondel.spaces import Box, MultiBinary, Space
from rondel.types import Tree


def observation_image(space: Space, obs: Tree) -> np.ndarray | None:
    """The first image in the observation of one lane, [height, width, 3] uint8, or None.

    One channel is grey and three are colours; other channels, as of MinAtar, get a colour each.
    """
    for _, leaf, array in leaves(space, obs):
        if isinstance(leaf, Box | MultiBinary) and len(leaf.shape) in (2, 3, 4):
            return _coloured(leaf, _channels_last(leaf, np.asarray(array)))
    return None


def _channels_last(leaf: Any, x: np.ndarray) -> np.ndarray:
    """The newest frame, [height, width, channels]."""
    if x.ndim == 4:
        x = x[-1]
    elif getattr(leaf, "frames", 1) > 1:
        x = x[-(len(x) // leaf.frames) :]
    if x.ndim == 2:
        return x[..., None]
    return np.moveaxis(x, 0, -1) if x.shape[0] < x.shape[-1] else x


def _coloured(leaf: Any, x: np.ndarray) -> np.ndarray:
    low, high = (leaf.low.min(), leaf.high.max()) if isinstance(leaf, Box) else (0, 1)
    if not np.isfinite([low, high]).all():
        low, high = x.min(), x.max()
    span = float(high) - float(low)
    part = (x.astype(np.float32) - float(low)) / (span or 1.0)
    channels = x.shape[-1]
    if leaf.dtype == "uint8" and high == 255 and channels not in (1, 3):
        part, channels = part[..., -1:], 1
    if channels == 1:
        part = part.repeat(3, axis=-1)
    elif channels != 3:
        part = (part[..., None] * _palette(channels)).max(axis=-2)
    return (255 * part.clip(0.0, 1.0)).round().astype(np.uint8)


def _palette(channels: int) -> np.ndarray:
    """Distinct colours [channels, 3]."""
    hues = [colorsys.hsv_to_rgb(i / channels, 0.6, 1.0) for i in range(channels)]
    return np.array(hues, np.float32)
