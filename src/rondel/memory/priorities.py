"""A sum tree over priorities: a random leaf in proportion to its weight, at a logarithmic cost.

One array holds all levels, the leaves first. Every WIDTH nodes of a level have a parent in the next,
their sum, up to a top level of WIDTH nodes. A parent is always computed anew from its children, so
nothing drifts, and by additions in one fixed order, so every program gives the same bits.

Schaul et al., Prioritized Experience Replay, arXiv 1511.05952.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import lax

if TYPE_CHECKING:
    from rondel.types import Array

WIDTH = 16  # measured: benchmarks/replay.py


def levels(leaves: int) -> tuple[int, ...]:
    """Where the levels of a tree over `leaves` begin, and at the end its size; multiples of WIDTH."""
    begins, nodes = [0], leaves
    while nodes > 1:
        nodes = -(-nodes // WIDTH)
        begins.append(begins[-1] + nodes * WIDTH)
    return tuple(begins)


def empty(leaves: int) -> Array:
    """A tree of `leaves` leaves, all 0."""
    return jnp.zeros(levels(leaves)[-1], jnp.float32)


def total(tree: Array) -> Array:
    """The sum of all leaves, ()."""
    return _sum(tree[-WIDTH:])


def refresh(tree: Array, leaves: int, start: Array, count: int) -> Array:
    """All nodes above leaves start .. start + count - 1, computed anew."""
    for below, above, end in zip(levels(leaves), levels(leaves)[1:-1], levels(leaves)[2:]):
        parents = (above - below) // WIDTH
        count = min(-(-count // WIDTH) + 1, parents)  # + 1: the range may begin within a group
        start = jnp.minimum(start // WIDTH, parents - count)
        children = lax.dynamic_slice(tree, (below + start * WIDTH,), (count * WIDTH,))
        tree = lax.dynamic_update_slice(tree, _sum(children.reshape(count, WIDTH)), (above + start,))
    return tree


def assign(tree: Array, leaves: int, leaf: Array, weight: Array) -> Array:
    """The leaves `leaf` [n] become `weight` [n]; of those named twice the greatest weight counts.

    A leaf of 0 stays 0: what must not be drawn is not brought back by a late word about it.
    """
    weight = jnp.where(tree[leaf] > 0.0, weight, 0.0)
    # set, then max: the same whatever order a device scatters duplicates in
    tree = tree.at[leaf].set(0.0).at[leaf].max(weight)
    node = leaf
    for below, above in zip(levels(leaves), levels(leaves)[1:-1]):
        node = node // WIDTH
        tree = tree.at[above + node].set(_sum(_group(tree, below // WIDTH + node)))
    return tree


def find(tree: Array, leaves: int, point: Array) -> tuple[Array, Array]:
    """The leaves [n] that cover the points [n] of the line from 0 to the total, and their weights.

    Each leaf covers a length of its weight, in order. One of weight 0 is never found, whatever
    rounding does, unless all are 0.
    """
    begins = levels(leaves)[:-1]

    def descend(i: Array, at: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        node, point, _ = at
        begin = jnp.asarray(begins[::-1], jnp.int32)[i]
        return _choose(_group(tree, begin // WIDTH + node), node * WIDTH, point)

    top = jnp.zeros(point.shape, jnp.int32), point, point
    leaf, _, weight = lax.fori_loop(0, len(begins), descend, top)
    return leaf, weight


def _choose(weight: Array, first: Array, point: Array) -> tuple[Array, Array, Array]:
    """Of WIDTH nodes [n, WIDTH] the last that has weight and begins at or before the point."""
    begin = jnp.zeros_like(point)
    chosen = first, point, jnp.zeros_like(point)
    for child in range(WIDTH):
        own = weight[:, child]
        here = (own > 0.0) & (begin <= point)
        now = first + child, point - begin, own
        chosen = tuple(jnp.where(here, new, old) for new, old in zip(now, chosen))
        begin = begin + own
    return chosen


def _group(tree: Array, group: Array) -> Array:
    """Groups of WIDTH siblings: [n, WIDTH]."""
    return tree.reshape(-1, WIDTH).at[group].get(mode="promise_in_bounds")


def _sum(weight: Array) -> Array:
    """Over the last axis, pairwise: additions that no compiler may reorder."""
    while weight.shape[-1] > 1:
        half = weight.shape[-1] // 2
        weight = weight[..., :half] + weight[..., half:]
    return weight[..., 0]
