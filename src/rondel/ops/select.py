"""A choice between two trees, lane by lane or row by row."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rondel.types import Array, Tree


def select(lanes: Array, chosen: Tree, other: Tree) -> Tree:
    """`chosen` [b, ...] where `lanes` [b] is True, `other` elsewhere."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(lanes.reshape(-1, *[1] * (b.ndim - 1)), a, b)

    return jax.tree.map(pick, chosen, other)
