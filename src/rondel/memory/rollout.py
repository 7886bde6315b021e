"""The memory of on-policy algorithms: the newest round, in several random orders.

Shapes: b lanes of T steps make R = b * T rows. An epoch is one permutation of them, cut into
minibatches. Observations that stack frames are kept frame by frame: `memory.frames`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from rondel.errors import RondelError
from rondel.formatting import divisors, join_words, nearest
from rondel.memory.frames import Frames, pack_stacked, take, take_stories
from rondel.ops.random import permutations
from rondel.spaces import Space
from rondel.types import Array, Memory, Tree


class Rollout(NamedTuple):
    """The newest round."""

    rows: Tree  # [R, ...], or `Frames`: of b lanes and T rows, or of R sequences
    order: Array  # [epochs, R] int32: a permutation of the rows per epoch


def rollout(
    epochs: int, minibatches: int, space: Space | None = None, sequences: bool = False
) -> Memory:
    """Pass over a round `epochs` times, each in a new random order and in `minibatches` parts.

    Items are any tree with leaves [b, T, ...], a batch the same tree with [R / minibatches, ...].
    Draw j is minibatch j % minibatches of epoch j // minibatches. The ticket is empty; ranking does
    nothing. With a `space`, that of the items' `obs`, stacked frames are stored once: over a lane's
    steps, or with `sequences`, where a row is a sequence [L, ...], over each of these.
    """

    def stored(items: Tree) -> Tree:
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), items)
        if space is None:
            return rows
        return rows._replace(
            obs=pack_stacked(space, rows.obs if sequences else items.obs, rows.obs)
        )

    def init(items_like: Tree, shards: int) -> Rollout:
        del shards  # a shard passes over its own lanes
        lanes, length = jax.tree.leaves(items_like)[0].shape[:2]
        if lanes * length % minibatches:
            near = nearest(divisors(lanes * length), minibatches)
            raise RondelError(
                f"minibatches must divide the {lanes * length} rows of a round ({lanes} lanes x "
                f"{length}), got {minibatches}. Use {join_words(near, 'or')}."
            )
        like = jax.eval_shape(stored, items_like)
        rows = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
        return Rollout(rows, jnp.zeros((epochs, lanes * length), jnp.int32))

    def add(memory: Rollout, items: Tree, key: Array) -> Rollout:
        return Rollout(stored(items), permutations(key, *memory.order.shape))

    def draw(memory: Rollout, key: Array, j: Array) -> tuple[Tree, Tree]:
        del key  # the order was drawn in `add`
        parts = memory.order.reshape(epochs * minibatches, -1)
        chosen = lax.dynamic_index_in_dim(parts, j, keepdims=False)

        def read(x: Array | Frames) -> Array:
            if not isinstance(x, Frames):
                return x.at[chosen].get(mode="promise_in_bounds")
            if sequences:
                return take_stories(x, chosen)
            length = x.age.shape[1]
            return take(x, chosen // length, chosen % length)

        return jax.tree.map(read, memory.rows, is_leaf=lambda x: isinstance(x, Frames)), ()

    return Memory(
        init=init,
        add=add,
        draw=draw,
        rank=lambda memory, ticket, feedback: memory,
        draws=epochs * minibatches,
    )
