"""The memory of off-policy algorithms: a ring of transitions, drawn at random.

Shapes: b lanes; a round adds T items per lane; the ring keeps C items per lane, C a multiple of T.
An observation is stored once: that of item i of a lane is row i, its successor is row i + offset[i]
of the same array, 1 <= offset <= ahead (the n of n-step returns). So a round writes T + ahead
observations in one piece at row `head`, into C + ahead rows: at the ring's end the last ones fall
beyond C, and no index needs a modulo. The price: a round also overwrites the observations of the
`ahead` items after it, which are the oldest ones and can no longer be drawn. Observations that
stack frames are kept frame by frame, in a ring of their own: `memory.frames`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from rondel.errors import RondelError
from rondel.formatting import join_words
from rondel.memory import priorities
from rondel.memory.frames import Film, blank, record, row_of, stacked_of
from rondel.memory.frames import take as take_stacked
from rondel.ops import random
from rondel.spaces import Space
from rondel.types import Array, Memory, Tree

EPSILON = 1e-6  # added to every error, so that no item is lost for good

Place: TypeAlias = tuple[Array, Array]  # lane and row of items, int32; a draw's ticket


class Transitions(NamedTuple):
    """The items of a round, lane by lane; the observation of item t is row t of `obs`."""

    obs: Tree  # [b, T + ahead, ...]
    action: Tree  # [b, T, ...]
    reward: Array  # [b, T]: the return of offset[t] steps
    discount: Array  # [b, T]: weight of the successor's value; 0 after a termination
    offset: Array  # [b, T] int32: rows to the successor
    valid: Array  # [b, T] bool
    priority: Array | None = None  # [b, T]: initial absolute error; `uniform` ignores it


class TransitionBatch(NamedTuple):
    """A draw of n rows."""

    obs: Tree  # [n, ...]
    next_obs: Tree  # [n, ...]
    action: Tree  # [n, ...]
    reward: Array  # [n]
    discount: Array  # [n]
    valid: Array  # [n] bool: the loss masks rows where False
    ratio: Array  # [n]: N * P(i); ratio**-beta is the importance weight


class Ring(NamedTuple):
    """The newest rounds, in a ring."""

    items: Transitions  # obs [b, C + ahead, ...] or `Film`, all else [b, C, ...], no priority
    edge: Tree  # [b, ahead, ...]: the last observations, with which the next round begins
    head: Array  # () int32: the row that the next round is written at
    filled: Array  # () int32: rows written so far, at most C
    slots: Array  # [n] int32, 0 .. n - 1: the rows of a draw


class Ranked(NamedTuple):
    """A ring and a sum tree; item (lane, row) is leaf row * b + lane, so a round is one slice."""

    ring: Ring
    levels: priorities.Levels  # of a tree over (C + ahead) * b leaves, as the observations


def uniform(
    capacity: int,
    batch: int,
    draws: int,
    warmup_rounds: int = 0,
    ahead: int = 1,
    space: Space | None = None,
) -> Memory:
    """The newest `capacity` transitions (rounded up to whole rounds), drawn uniformly.

    Items are `Transitions`, batches `TransitionBatch` of batch / shards rows, `ratio` 1. Invalid
    items are drawn too; the loss masks them. With a `space`, that of the observations, stacked
    frames are stored once.
    """

    def init(items_like: Transitions, shards: int) -> Ring:
        return _empty(items_like, capacity, batch, shards, ahead, space)

    def add(ring: Ring, items: Transitions, key: Array) -> Ring:
        del key
        restarted = _restarted(ring, items)
        return _write(ring, items, restarted, _lost_items(ring, restarted))

    def draw(ring: Ring, key: Array, j: Array) -> tuple[TransitionBatch, Place]:
        del j
        lanes, size = ring.items.valid.shape
        stored = jnp.minimum(ring.filled, size - ahead)
        words = random.bits(key, 2 * ring.slots.size).reshape(2, -1)
        most = jnp.stack([jnp.int32(lanes), jnp.maximum(stored, 1)]).astype(jnp.uint32)
        # the remainder of 32 random bits: its bias is below most / 2**32
        lane, age = (words % most[:, None]).astype(jnp.int32)
        place = lane, (ring.head - 1 - age) % size
        return _read(ring, place, jnp.ones(lane.shape, jnp.float32)), place

    def rank(ring: Ring, ticket: Place, feedback: Tree) -> Ring:
        del ticket, feedback
        return ring

    return Memory(init, add, draw, rank, draws, warmup_rounds)


def prioritised(
    capacity: int,
    batch: int,
    draws: int,
    exponent: float,
    warmup_rounds: int = 0,
    ahead: int = 1,
    space: Space | None = None,
) -> Memory:
    """The newest `capacity` transitions, drawn more often the greater their error.

    Item i is drawn with P(i) = p_i / sum of p, where p_i = (|error_i| + 1e-6)**exponent. The first
    error is the item's `priority`; newer ones come as feedback [n] to `rank`. Items that are not
    valid are never drawn. A draw is stratified: one point in each of n equal parts of the total.
    `ratio` is N * P(i), N being the rows that are stored. With a `space`, that of the observations,
    stacked frames are stored once.

    Schaul et al., Prioritized Experience Replay, arXiv 1511.05952.
    """

    def weigh(error: Array) -> Array:
        return (jnp.abs(error) + EPSILON) ** exponent

    def init(items_like: Transitions, shards: int) -> Ranked:
        if items_like.priority is None:
            raise RondelError("A prioritised replay needs items with a `priority`, such as 1.")
        ring = _empty(items_like, capacity, batch, shards, ahead, space)
        lanes, size = ring.items.valid.shape
        return Ranked(ring, priorities.empty((size + ahead) * lanes))

    def add(memory: Ranked, items: Transitions, key: Array) -> Ranked:
        del key
        assert items.priority is not None
        ring, (lanes, length) = memory.ring, items.valid.shape
        restarted, reach, size = _restarted(ring, items), _reach(ring), ring.items.valid.shape[1]
        lane, row = lost = _lost_items(ring, restarted)
        # as with observations, the round also replaces the `ahead` oldest rows after it
        weight = jnp.where(items.valid, weigh(items.priority), 0.0)
        weight = jnp.pad(weight, ((0, 0), (0, ahead))).T.reshape(-1)
        leaves, *above = memory.levels
        leaves = leaves.at[row * lanes + lane].set(0.0)
        leaves = lax.dynamic_update_slice(leaves, weight, (ring.head * lanes,))
        first = jnp.maximum(ring.head - reach, 0) * lanes
        count = (length + reach + ahead) * lanes
        levels = priorities.refresh((leaves, *above), first, count)
        if reach > ahead:  # lost items may be at the ring's end, the head at its beginning
            last = min(reach, size)
            start = jnp.int32((size - last) * lanes)
            levels = priorities.refresh(levels, start, last * lanes)
        return Ranked(_write(ring, items, restarted, lost), levels)

    def draw(memory: Ranked, key: Array, j: Array) -> tuple[TransitionBatch, Place]:
        del j
        ring, (lanes, size) = memory.ring, memory.ring.items.valid.shape
        stored = lanes * jnp.minimum(ring.filled, size - ahead)
        leaf, weight, ratio = priorities.draw(memory.levels, ring.slots, key, stored)
        place = leaf % lanes, leaf // lanes
        batch = _read(ring, place, ratio)
        return batch._replace(valid=batch.valid & (weight > 0.0)), place

    def rank(memory: Ranked, ticket: Place, feedback: Array) -> Ranked:
        lane, row = ticket
        leaf = row * memory.ring.items.valid.shape[0] + lane
        return memory._replace(levels=priorities.assign(memory.levels, leaf, weigh(feedback)))

    return Memory(init, add, draw, rank, draws, warmup_rounds)


def _empty(
    items_like: Transitions, capacity: int, batch: int, shards: int, ahead: int, space: Space | None
) -> Ring:
    lanes, length = items_like.valid.shape
    size = -(-capacity // (shards * lanes * length)) * length
    slots = slots_of(batch, shards)
    _check(items_like, size, shards, ahead)

    def zeros(rows: int, tree: Tree) -> Tree:
        return jax.tree.map(lambda x: jnp.zeros((lanes, rows, *x.shape[2:]), x.dtype), tree)

    def seen(stacked: int, x: Array) -> Array | Film:
        return blank(x, stacked, size, ahead) if stacked > 1 else zeros(size + ahead, x)

    stacked = stacked_of(space, items_like.obs)
    items = zeros(size, items_like._replace(obs=None, priority=None))
    items = items._replace(obs=jax.tree.map(seen, stacked, items_like.obs))
    return Ring(
        items=items,
        edge=zeros(ahead, items_like.obs),
        head=jnp.zeros((), jnp.int32),  # each its own buffer: a buffer is donated once
        filled=jnp.zeros((), jnp.int32),
        slots=slots,
    )


def _is_film(x: Tree) -> bool:
    return isinstance(x, Film)


def _ahead(ring: Ring) -> int:
    return jax.tree.leaves(ring.edge)[0].shape[1]


def _reach(ring: Ring) -> int:
    """The number of items before the head that a restarted lane loses."""
    films = filter(_is_film, jax.tree.leaves(ring.items.obs, is_leaf=_is_film))
    return _ahead(ring) + max((film.frames.stacked - 1 for film in films), default=0)


def _restarted(ring: Ring, items: Transitions) -> Array:
    """Lanes [b] that do not continue: their first observations differ from the last ones stored.

    Their environment was restarted, or lanes came in another order.
    """
    ahead = _ahead(ring)

    def differs(old: Array, new: Array) -> Array:
        return (old != new[:, :ahead]).reshape(old.shape[0], -1).any(axis=1)

    return jnp.stack(jax.tree.leaves(jax.tree.map(differs, ring.edge, items.obs))).any(axis=0)


def _lost_items(ring: Ring, restarted: Array) -> Place:
    """Items [b, reach] whose successors this round overwrites with unrelated observations.

    A lane that continues overwrites its last `ahead` observations with equal ones. A restarted one
    replaces them by observations that never followed; in a film it also overwrites the F - 1 frames
    before. Elsewhere the row is C, which belongs to no item.
    """
    size, reach = ring.items.valid.shape[1], _reach(ring)
    lane, row = jnp.indices((restarted.shape[0], reach), dtype=jnp.int32)
    row = ring.head - reach + row
    if reach > _ahead(ring):  # a film's end is not the ring's: items are lost there too
        return lane, jnp.where(restarted[:, None], row % size, size)
    return lane, jnp.where(restarted[:, None] & (row >= 0), row, size)


def _write(ring: Ring, items: Transitions, restarted: Array, lost: Place) -> Ring:
    length, size = items.valid.shape[1], ring.items.valid.shape[1]
    ahead = _ahead(ring)

    def put(stored: Array | Film, new: Array) -> Array | Film:
        if isinstance(stored, Film):
            return record(stored, new, restarted, ahead)
        return lax.dynamic_update_slice(stored, new, (0, ring.head, *[0] * (new.ndim - 2)))

    stored = ring.items._replace(valid=ring.items.valid.at[lost].set(False, mode="drop"))
    return Ring(
        items=jax.tree.map(put, stored, items._replace(priority=None), is_leaf=_is_film),
        edge=jax.tree.map(lambda x: x[:, -ahead:], items.obs),
        head=(ring.head + length) % size,
        filled=jnp.minimum(ring.filled + length, size),
        slots=ring.slots,
    )


def _read(ring: Ring, place: Place, ratio: Array) -> TransitionBatch:
    (lane, row), size = place, ring.items.valid.shape[1]

    def take(tree: Tree, further: Array | int = 0) -> Tree:
        def one(x: Array | Film) -> Array:
            if isinstance(x, Film):
                there = row_of(x, (ring.head - 1 - row) % size, _ahead(ring))
                return take_stacked(x.frames, lane, there + further)
            # two indices, since lanes * rows * numbers may pass 2**31
            return x.at[lane, row + further].get(mode="promise_in_bounds")

        return jax.tree.map(one, tree, is_leaf=_is_film)

    rest: Transitions = take(ring.items._replace(obs=None))
    return TransitionBatch(
        obs=take(ring.items.obs),
        next_obs=take(ring.items.obs, rest.offset),
        action=rest.action,
        reward=rest.reward,
        discount=rest.discount,
        valid=rest.valid,
        ratio=ratio,
    )


def slots_of(batch: int, shards: int) -> Array:
    """The rows of a draw from one shard: [batch / shards] int32, 0, 1, ..."""
    if batch % shards:
        least = batch // shards * shards
        raise RondelError(
            f"batch must be a multiple of the {shards} memory shards, got {batch}. "
            f"Use {join_words(filter(None, (least, least + shards)), 'or')}."
        )
    return jnp.arange(batch // shards, dtype=jnp.int32)


def _check(items_like: Transitions, size: int, shards: int, ahead: int) -> None:
    lanes, length = items_like.valid.shape
    least = length + 2 * ahead
    if size < least:
        rows = -(-least // length) * length
        raise RondelError(
            f"capacity must be {rows * lanes * shards} or more: a round adds {length} steps in "
            f"each of {lanes * shards} lanes, and the {ahead} oldest cannot be drawn."
        )
    for leaf in jax.tree.leaves(items_like.obs):
        if leaf.shape[:2] != (lanes, length + ahead):
            raise RondelError(
                f"`obs` must be [{lanes}, {length + ahead}, ...] for items [{lanes}, {length}], "
                f"with the {ahead} rows after the last item, got {list(leaf.shape)}."
            )
