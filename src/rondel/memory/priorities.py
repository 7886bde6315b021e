"""A sum tree over priorities: draws leaves in proportion to their weights, at logarithmic cost.

Level 0 holds the leaves; every WIDTH nodes of a level have a parent in the next, their sum, up to
a top level of WIDTH nodes. A parent is always recomputed from its children, so nothing drifts, and
by additions in one fixed order, so every program gives the same bits.

Schaul et al., Prioritized Experience Replay, arXiv 1511.05952.
"""

from __future__ import annotations

from typing import TypeAlias

import jax.numpy as jnp
from jax import lax

from rondel.ops import random
from rondel.types import Array

Levels: TypeAlias = tuple[Array, ...]
WIDTH = 16  # measured: benchmarks/replay.py


def empty(leaves: int) -> Levels:
    """A tree of `leaves` leaves (up to a multiple of WIDTH more), all 0."""
    groups = [-(-leaves // WIDTH)]
    while groups[-1] > 1:
        groups.append(-(-groups[-1] // WIDTH))
    return tuple(jnp.zeros(n * WIDTH, jnp.float32) for n in groups)


def total(levels: Levels) -> Array:
    """The sum of all leaves, ()."""
    return _sum(levels[-1])


def refresh(levels: Levels, start: Array, count: int) -> Levels:
    """Recompute all nodes above leaves start .. start + count - 1."""
    done = [levels[0]]
    for level in levels[1:]:
        below = done[-1]
        parents = below.size // WIDTH
        count = min(-(-count // WIDTH) + 1, parents)  # + 1: the range may begin within a group
        start = jnp.minimum(start // WIDTH, parents - count)
        children = lax.dynamic_slice(below, (start * WIDTH,), (count * WIDTH,))
        sums = _sum(children.reshape(count, WIDTH))
        done.append(lax.dynamic_update_slice(level, sums, (start,)))
    return tuple(done)


def assign(levels: Levels, leaf: Array, weight: Array) -> Levels:
    """Set the leaves `leaf` [n] that are above 0 to `weight` [n], except where that is NaN.

    A leaf of 0 stays 0: late feedback must not bring back what may not be drawn.
    """
    given = ~jnp.isnan(weight)
    return put(levels, leaf, jnp.where(levels[0][leaf] > 0.0, weight, 0.0), given)


def put(levels: Levels, leaf: Array, weight: Array, given: Array | None = None) -> Levels:
    """Set the leaves `leaf` [n] to `weight` [n], where `given`; duplicates get the greatest."""
    at = leaf if given is None else jnp.where(given, leaf, levels[0].size)
    # set, then max: independent of the order in which a device scatters duplicates
    done = [levels[0].at[at].set(weight, mode="drop").at[at].max(weight, mode="drop")]
    node = leaf
    for level in levels[1:]:
        node = node // WIDTH
        done.append(level.at[node].set(_sum(_group(done[-1], node))))
    return tuple(done)


def find(levels: Levels, point: Array) -> tuple[Array, Array]:
    """The leaves [n] that cover the points [n] of the line from 0 to the total, and their weights.

    Each leaf covers a length of its weight, in order. One of weight 0 is never found, whatever
    rounding does, unless all are 0.
    """
    node, weight = jnp.zeros(point.shape, jnp.int32), jnp.zeros_like(point)
    for level in reversed(levels):
        child, begin, weight = _cover(_group(level, node).T, point)
        node, point = node * WIDTH + child, point - begin
    return node, weight


def draw(levels: Levels, slots: Array, key: Array, stored: Array) -> tuple[Array, Array, Array]:
    """Leaves, one at a random point in each of n equal parts of the total: [n], their weights, N P.

    `slots` are 0 .. n - 1, N is how many are `stored`.
    """
    whole = total(levels)
    part = (slots + random.uniform(key, slots.size)) / slots.size
    leaf, weight = find(levels, part * whole)
    return leaf, weight, jnp.where(weight > 0.0, weight * (stored / whole), 1.0)


def _cover(weight: Array, point: Array) -> tuple[Array, Array, Array]:
    """The node of [WIDTH, n] that covers each point [n]: (child, where it begins, its weight).

    It is the last that has weight and begins at or before the point, also where rounding has put
    the point beyond the end of all. One reduction gives all three: else XLA would walk down the
    tree once for each of them, and read it after `assign` has begun.
    """
    begins = [jnp.zeros_like(point)]
    for row in weight[:-1]:
        begins.append(begins[-1] + row)
    begin = jnp.stack(begins)
    child = jnp.arange(WIDTH, dtype=jnp.int32)[:, None]
    child = jnp.where((weight > 0.0) & (begin <= point[None]), child, -1)
    nothing = jnp.int32(-1), jnp.float32(0.0), jnp.float32(0.0)
    child, begin, weight = lax.reduce((child, begin, weight), nothing, _later, (0,))
    return jnp.maximum(child, 0), begin, weight


def _later(one: tuple[Array, ...], two: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(jnp.where(two[0] > one[0], y, x) for x, y in zip(one, two, strict=True))


def _group(level: Array, group: Array) -> Array:
    """Groups of WIDTH siblings: [n, WIDTH]."""
    return level.reshape(-1, WIDTH).at[group].get(mode="promise_in_bounds")


def _sum(weight: Array) -> Array:
    """Over the last axis, pairwise: additions that no compiler may reorder."""
    while weight.shape[-1] > 1:
        half = weight.shape[-1] // 2
        weight = weight[..., :half] + weight[..., half:]
    return weight[..., 0]
