"""Random actions, and the leaves and bounds of observations, for checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rondel.spaces import Box, Discrete, Leaf, Space
from rondel.types import Tree


def random_action(space: Space, b: int, random: np.random.Generator, mask: Any = None) -> Any:
    """Random actions [b, ...] in a policy's units: choices from 0, Box actions in -1..1.

    `mask` [b, choices of all entries] forbids the choices where it is 0.
    """
    if isinstance(space, Box):
        return random.uniform(-1.0, 1.0, (b, *space.shape)).astype(np.float32)
    counts = (space.n,) if isinstance(space, Discrete) else space.n
    lots = 1.0 - random.uniform(size=(b, sum(counts)))  # above 0, so that 0 never wins
    lots = lots if mask is None else lots * (np.asarray(mask) != 0)
    entries = np.split(lots, np.cumsum(counts)[:-1], axis=1)
    chosen = np.stack([entry.argmax(axis=1) for entry in entries], axis=1).astype(np.int32)
    return chosen.reshape(b, *space.shape)


def leaves(space: Space, tree: Tree, path: str = "") -> Iterator[tuple[str, Leaf, Any]]:
    """(path, space, array) for every array of the space; a missing part is a KeyError."""
    if isinstance(space, dict | tuple):
        for name in space if isinstance(space, dict) else range(len(space)):
            yield from leaves(space[name], tree[name], f"{path}[{name!r}]")
    else:
        yield path, space, tree


def violations(array: Any, low: Any, high: Any) -> str | None:
    """An element beyond its bounds by more than rounding, in words; None if there is none."""
    wide = np.asarray(array, np.float64)
    slack = 1e-5 * np.maximum(1.0, np.abs(wide))
    beyond = (wide < low - slack) | (wide > high + slack)
    if not beyond.any():
        return None
    low, high = (np.broadcast_to(bound, wide.shape)[beyond][0] for bound in (low, high))
    return f"{wide[beyond][0]:g}, with bounds {low:g} and {high:g}"
