"""A memory of demonstrations beside a replay: kept for good, drawn with a fixed share.

Gülçehre et al., Making Efficient Use of Demonstrations to Solve Hard Exploration Problems, arXiv
1909.01387. Each shard holds all demonstrations, with priorities of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from rondel.ops import random
from rondel.ops.select import select
from rondel.types import Array, Memory, Tree

# which rows [n] of a batch are demonstrations, and the tickets of both draws
Ticket: TypeAlias = tuple[Array, Tree, Tree]


class Both(NamedTuple):
    """Two memories of one kind."""

    own: Tree  # of the run itself
    shown: Tree  # of demonstrations


def with_demonstrations(
    of_size: Callable[[int], Memory],
    capacity: int,
    demonstrations: Tree,
    rounds: int,
    room: int,
    share: float,
) -> Memory:
    """Each row of a batch comes from the demonstrations with probability `share`.

    `of_size(capacity)` makes both memories; their size matters to `init` alone. Demonstrations are
    items [b, ...] of `rounds` rounds, one after the other in the second axis; `room` is the
    capacity that they need.
    """
    memory = of_size(capacity)

    def init(items_like: Tree, shards: int) -> Both:
        each = jax.tree.map(lambda x: _cut(jnp.asarray(x), rounds), demonstrations)
        shown = of_size(room * shards).init(jax.tree.map(lambda x: x[0], each), shards)
        key = random.key(0)
        shown, _ = lax.scan(lambda held, items: (memory.add(held, items, key), None), shown, each)
        return Both(memory.init(items_like, shards), shown)

    def add(both: Both, items: Tree, key: Array) -> Both:
        return both._replace(own=memory.add(both.own, items, key))

    def draw(both: Both, key: Array, j: Array) -> tuple[Tree, Ticket]:
        own, own_ticket = memory.draw(both.own, random.fold(key, 0), j)
        shown, shown_ticket = memory.draw(both.shown, random.fold(key, 1), j)
        n = jax.tree.leaves(own)[0].shape[0]
        is_shown = random.uniform(random.fold(key, 2), n) < share
        return select(is_shown, shown, own), (is_shown, own_ticket, shown_ticket)

    def rank(both: Both, ticket: Ticket, feedback: Array) -> Both:
        is_shown, own, shown = ticket
        # NaN: no feedback on what was drawn and not taken
        return Both(
            memory.rank(both.own, own, jnp.where(is_shown, jnp.nan, feedback)),
            memory.rank(both.shown, shown, jnp.where(is_shown, feedback, jnp.nan)),
        )

    return Memory(init, add, draw, rank, memory.draws, memory.warmup_rounds)


def _cut(x: Array, rounds: int) -> Array:
    """From [b, all, ...] to [rounds, b, part, ...]."""
    return jnp.moveaxis(x.reshape(x.shape[0], rounds, -1, *x.shape[2:]), 1, 0)
