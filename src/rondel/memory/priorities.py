"""A sum tree over priorities: a random leaf in proportion to its weight, at a logarithmic cost.

Level 0 holds the leaves; every node of a level above is the sum of WIDTH nodes below, up to a top
level of WIDTH nodes. A node is always computed anew from its children, so nothing drifts, and by
elementwise additions in one fixed order, so every program gives the same bits.

Schaul et al., Prioritized Experience Replay, arXiv 1511.05952.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import jax.numpy as jnp
from jax import lax

if TYPE_CHECKING:
    from rondel.types import Array

Levels: TypeAlias = "tuple[Array, ...]"
WIDTH = 16  # measured: benchmarks/replay.py


def empty(leaves: int) -> Levels:
    """A tree of at least `leaves` leaves, all 0."""
    sizes = [_nodes_above(leaves) * WIDTH]
    while sizes[-1] > WIDTH:
        sizes.append(_nodes_above(sizes[-1] // WIDTH) * WIDTH)
    return tuple(jnp.zeros(size, jnp.float32) for size in sizes)


def total(levels: Levels) -> Array:
    """The sum of all leaves, ()."""
    return _sum(levels[-1])


def refresh(levels: Levels, start: Array, count: int) -> Levels:
    """All nodes above leaves start .. start + count - 1, computed anew."""
    done = [levels[0]]
    for above in levels[1:]:
        below = done[-1]
        count = min(_nodes_above(count) + 1, below.size // WIDTH)  # + 1: the range may lie across
        start = jnp.minimum(start // WIDTH, below.size // WIDTH - count)
        children = lax.dynamic_slice(below, (start * WIDTH,), (count * WIDTH,))
        sums = _sum(children.reshape(count, WIDTH))
        done.append(lax.dynamic_update_slice(above, sums, (start,)))
    return tuple(done)


def assign(levels: Levels, leaf: Array, weight: Array) -> Levels:
    """The leaves `leaf` [n] become `weight` [n]; of those named twice the greatest weight counts.

    A leaf of 0 stays 0: what must not be drawn is not brought back by a late word about it.
    """
    weight = jnp.where(levels[0][leaf] > 0.0, weight, 0.0)
    # set, then max: the same whatever order a device scatters duplicates in
    done = [levels[0].at[leaf].set(0.0).at[leaf].max(weight)]
    node = leaf
    for above in levels[1:]:
        node = node // WIDTH
        done.append(above.at[node].set(_sum(_children(done[-1], node))))
    return tuple(done)


def find(levels: Levels, point: Array) -> tuple[Array, Array]:
    """The leaves [n] that cover the points [n] of the line from 0 to the total, and their weights.

    Each leaf covers a length of its weight, in order. One of weight 0 is never found, whatever
    rounding does, unless all are 0.
    """
    node = jnp.zeros(point.shape, jnp.int32)
    for level in reversed(levels):
        weight = _children(level, node)
        reach = jnp.cumsum(weight, axis=-1)
        there = weight > 0.0
        hit = there & (reach > point[:, None])
        last = jnp.argmax(jnp.where(there, jnp.arange(WIDTH)[None, :], -1), axis=-1)
        child = jnp.where(hit.any(axis=-1), jnp.argmax(hit, axis=-1), last)
        picked = jnp.arange(WIDTH)[None, :] == child[:, None]
        found = jnp.where(picked, weight, 0.0).sum(axis=-1)
        before = jnp.where(picked, reach - weight, 0.0).sum(axis=-1)
        point = jnp.maximum(point - before, 0.0)
        node = node * WIDTH + child
    return node, found


def _nodes_above(nodes: int) -> int:
    return -(-nodes // WIDTH)


def _children(level: Array, node: Array) -> Array:
    """The weights of the WIDTH children of each node [n]: [n, WIDTH]."""
    return level.reshape(-1, WIDTH).at[node].get(mode="promise_in_bounds")


def _sum(weight: Array) -> Array:
    """Over the last axis, pairwise: additions that no compiler may reorder."""
    while weight.shape[-1] > 1:
        half = weight.shape[-1] // 2
        weight = weight[..., :half] + weight[..., half:]
    return weight[..., 0]
