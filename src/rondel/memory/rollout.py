"""The memory of on-policy algorithms: the newest round, passed over a few times in random order.

Shapes: b lanes of T steps make R = b * T rows. An epoch is one permutation of them, cut into
minibatches. Observations that stack frames are kept frame by frame: `memory.frames`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from rondel.errors import RondelError
from rondel.memory.frames import Frames, pack, stacked_of, take, take_stories
from rondel.ops import random
from rondel.types import Memory

if TYPE_CHECKING:
    from rondel.spaces import Space
    from rondel.types import Array, Tree


ROUNDS = 4  # of the shuffle, two steps each


class Rollout(NamedTuple):
    """The newest round."""

    rows: Tree  # [R, ...], or `Frames`: of b lanes and T rows, or of R sequences
    order: Array  # [epochs, R] int32: a permutation of the rows per epoch


def rollout(
    epochs: int, minibatches: int, space: Space | None = None, sequences: bool = False
) -> Memory:
    """A round is passed over `epochs` times, each in a new random order and `minibatches` parts.

    Items are any tree with leaves [b, T, ...], a batch the same tree with [R / minibatches, ...].
    Draw j is minibatch j % minibatches of epoch j // minibatches. The ticket is empty; ranking does
    nothing. With a `space`, that of the items' `obs`, stacked frames are stored once: over a lane's
    steps, or with `sequences`, where a row is a stretch [L, ...] of time, over each of these.
    """

    def stored(items: Tree) -> Tree:
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), items)
        if space is None:
            return rows

        def framed(stacked: int, x: Array, flat: Array) -> Array | Frames:
            return pack(x, stacked) if stacked > 1 else flat

        stories = rows.obs if sequences else items.obs
        stacked = stacked_of(space, stories)
        return rows._replace(obs=jax.tree.map(framed, stacked, stories, rows.obs))

    def init(items_like: Tree, shards: int) -> Rollout:
        del shards  # a shard passes over its own lanes
        lanes, length = jax.tree.leaves(items_like)[0].shape[:2]
        _check_divides(minibatches, lanes, length)
        rows = jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(stored, items_like)
        )
        return Rollout(rows, jnp.zeros((epochs, lanes * length), jnp.int32))

    def add(memory: Rollout, items: Tree, key: Array) -> Rollout:
        return Rollout(stored(items), permutations(key, *memory.order.shape))

    def draw(memory: Rollout, key: Array, j: Array) -> tuple[Tree, Tree]:
        del key  # the order was drawn in `add`
        parts = memory.order.reshape(epochs * minibatches, -1)
        chosen = lax.dynamic_index_in_dim(parts, j, keepdims=False)

        def read(x: Array | Frames) -> Array:
            if isinstance(x, Frames) and sequences:
                return take_stories(x, chosen)
            if isinstance(x, Frames):
                length = x.age.shape[1]
                return take(x, chosen // length, chosen % length)
            return x.at[chosen].get(mode="promise_in_bounds")

        return jax.tree.map(read, memory.rows, is_leaf=lambda x: isinstance(x, Frames)), ()

    def rank(memory: Rollout, ticket: Tree, feedback: Tree) -> Rollout:
        del ticket, feedback
        return memory

    return Memory(init, add, draw, rank, draws=epochs * minibatches)


def permutations(key: Array, count: int, length: int) -> Array:
    """`count` random orders of `length` rows, [count, length] int32, without a sort (20 x faster).

    A Feistel network maps 0 .. 2**bits - 1 onto itself: each half of the bits in turn is xored with
    a keyed hash of the other. What lands at `length` or beyond is mapped again until it does not.

    Mitchell et al., Bandwidth-Optimal Random Shuffling for GPUs, arXiv 2106.06161.
    """
    bits = max(length - 1, 3).bit_length()
    low = bits // 2
    high_mask, low_mask = (1 << bits - low) - 1, (1 << low) - 1
    keys = random.bits(key, ROUNDS * 2 * count).reshape(ROUNDS, 2, count, 1)

    def shuffle(x: Array) -> Array:
        left, right = x >> low, x & low_mask
        for one, two in keys:
            left = left ^ (_hash(right ^ one) & high_mask)
            right = right ^ (_hash(left ^ two) & low_mask)
        return left << low | right

    def beyond(x: Array) -> Array:
        return x >= length

    rows = shuffle(jnp.broadcast_to(jnp.arange(length, dtype=jnp.uint32), (count, length)))
    if length < 1 << bits:
        rows = lax.while_loop(
            lambda x: beyond(x).any(), lambda x: jnp.where(beyond(x), shuffle(x), x), rows
        )
    return rows.astype(jnp.int32)


def _hash(x: Array) -> Array:
    """Mixes 32 bits so that each of them moves half of all (Wellons' `lowbias32`)."""
    x = (x ^ x >> 16) * jnp.uint32(0x7FEB352D)
    x = (x ^ x >> 15) * jnp.uint32(0x846CA68B)
    return x ^ x >> 16


def _check_divides(minibatches: int, lanes: int, length: int) -> None:
    rows = lanes * length
    if rows % minibatches == 0:
        return
    fits = [n for n in range(1, rows + 1) if rows % n == 0]
    near = sorted(sorted(fits, key=lambda n: abs(math.log(n / minibatches)))[:3])
    raise RondelError(
        f"minibatches={minibatches} does not divide the {rows} rows of a round ({lanes} lanes x "
        f"{length}); {', '.join(map(str, near))} would."
    )
