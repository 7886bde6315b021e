"""The memory of algorithms that learn from a round as a whole: the newest round.

Shapes: b lanes; a batch has its rows in the order of the lanes, `group` of them in a row.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rondel.errors import RondelError
from rondel.formatting import plural
from rondel.types import Array, Memory, Tree


def newest(group: int = 1) -> Memory:
    """One draw per round, of all its items [b, ...] as rows [b / group, group, ...]."""

    def init(items_like: Tree, shards: int) -> Tree:
        lanes = jax.tree.leaves(items_like)[0].shape[0]
        if lanes % group:
            raise RondelError(
                f"lanes must be a multiple of {group * shards} ({plural(shards, 'memory shard')}, "
                f"groups of {group}), got {lanes * shards}."
            )
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), items_like)

    def draw(memory: Tree, key: Array, j: Array) -> tuple[Tree, Tree]:
        del key, j
        return jax.tree.map(lambda x: x.reshape(-1, group, *x.shape[1:]), memory), ()

    return Memory(
        init=init,
        add=lambda memory, items, key: items,
        draw=draw,
        rank=lambda memory, ticket, feedback: memory,
        draws=1,
    )
