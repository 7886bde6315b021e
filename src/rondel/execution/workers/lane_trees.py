"""Join the trees of several copies, and split them again, lane by lane."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rondel.execution.hostenv.partition import LaneShare
from rondel.types import Tree


def take_share(share: LaneShare, parts: tuple[Tree, ...]) -> Tree:
    """One copy's share of what several others made [b, ...]."""
    nth, of = share
    whole = concat_lanes(parts)
    if of == 1:
        return whole

    def cut(x: Any) -> Any:
        size = x.shape[0] // of
        return x[nth * size : (nth + 1) * size]

    return jax.tree.map(cut, whole)


def concat_lanes(trees: Any, axis: int = 0) -> Tree:
    """Concatenate trees of one structure along an axis."""

    def join(*xs: Any) -> Any:
        if all(isinstance(x, np.ndarray) for x in xs):
            return np.concatenate(xs, axis)
        return jnp.concatenate(xs, axis)

    return trees[0] if len(trees) == 1 else jax.tree.map(join, *trees)


def stack(trees: list[Any]) -> Any:
    """Stack trees of one structure along a new first axis, in new host memory."""
    return jax.tree.map(lambda *xs: np.stack(xs), *trees)
