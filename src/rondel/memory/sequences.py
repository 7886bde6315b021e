"""The memory of recurrent off-policy algorithms: sequences, with their recurrent states.

Shapes: b lanes; a round adds T rows per lane; the ring keeps C rows per lane, C a multiple of T.
Sequences are L rows long and begin at every S-th row, S dividing both T and L. Neighbours share
L - S rows, which are stored once. Of observations that stack F frames a round keeps the newest ones
and the F - 1 before: a story (`memory.frames`) for each lane of each round. The recurrent state
before each beginning is kept too; a learner may update it over the first rows (burn-in).

Kapturowski et al., Recurrent Experience Replay in Distributed Reinforcement Learning, ICLR 2019.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from rondel.errors import RondelError
from rondel.memory import priorities
from rondel.memory.frames import Frames, pack_stacked, take
from rondel.memory.replay import EPSILON, slots_of
from rondel.spaces import Space
from rondel.types import Array, Memory, Tree

Place: TypeAlias = tuple[Array, Array]  # lane, and which of its beginnings; a draw's ticket


class Stretch(NamedTuple):
    """The items of a round, lane by lane."""

    rows: Tree  # [b, T, ...]: a record whose `first` and `valid` say where episodes begin and end
    carry: Tree  # [b, T / S, ...]: the recurrent state before every S-th row
    # [b, T / S]: initial absolute error of the sequences that this round completes; the k-th of
    # them ends with row (k + 1) S - 1. Ignored without `exponent`.
    priority: Array | None = None
    # [b, 2, ...]: a label of a lane's story, in the last row before this round and in its own last
    # row. Where the former differs from the stored latter, lanes came in another order, as in a
    # free run: no sequence spans both rounds. (): the order never changes.
    edge: Tree = ()


class SequenceBatch(NamedTuple):
    """A draw of n sequences."""

    rows: Tree  # [n, L, ...]
    carry: Tree  # [n, ...]: before the first row
    ratio: Array  # [n]: N * P(i); ratio**-beta is the importance weight


class Sequences(NamedTuple):
    """The newest rounds."""

    rows: Tree  # [b, C, ...], or `Frames` of C / T * b stories: round k of a lane is k * b + lane
    carry: Tree  # [b, C / S, ...]
    levels: priorities.Levels  # of a tree; beginning i of a lane is leaf i * b + lane
    head: Array  # () int32: the row that the next round is written at
    filled: Array  # () int32: rows written so far, at most C
    unbroken: Array  # [b] int32: rows up to the head that are one story, at most C
    edge: Tree  # [b, ...]: of the last row
    slots: Array  # [n] int32, 0 .. n - 1: the sequences of a draw


class _Cut(NamedTuple):
    """How rows become sequences; the fields are those of `sequences`."""

    capacity: int
    batch: int
    length: int
    stride: int
    exponent: float | None
    space: Space | None

    @property
    def parts(self) -> int:
        """Beginnings per sequence."""
        return self.length // self.stride


def sequences(
    capacity: int,
    batch: int,
    draws: int,
    length: int,
    stride: int,
    exponent: float | None = None,
    warmup_rounds: int = 0,
    space: Space | None = None,
) -> Memory:
    """The newest `capacity` rows (rounded up to whole rounds), drawn in sequences of `length`.

    Items are `Stretch`, batches `SequenceBatch` of batch / shards sequences. With an `exponent`
    draws favour greater errors, as in `replay.prioritised`; else they are uniform.
    Feedback is [n], an error per sequence. With a `space`, that of the rows' `obs`, stacked frames
    are stored once.
    """
    if length % stride:
        raise RondelError(
            f"The stride of sequences must divide their length, {length}, got {stride}."
        )
    cut = _Cut(capacity, batch, length, stride, exponent, space)
    return Memory(
        init=partial(_init, cut),
        add=partial(_add, cut),
        draw=partial(_draw, cut),
        rank=partial(_rank, cut),
        draws=draws,
        warmup_rounds=warmup_rounds,
    )


def _init(cut: _Cut, items_like: Stretch, shards: int) -> Sequences:
    lanes, added = jax.tree.leaves(items_like.rows)[0].shape[:2]
    size = -(-cut.capacity // (shards * lanes * added)) * added
    slots = slots_of(cut.batch, shards)
    _check(cut, added, size, lanes, shards)

    def room(x: Array | Frames) -> Array | Frames:
        if isinstance(x, Frames):
            stories = size // added * lanes
            return Frames(*(jnp.zeros((stories, *part.shape[1:]), part.dtype) for part in x))
        return jnp.zeros((lanes, size, *x.shape[2:]), x.dtype)

    def starts(x: Array) -> Array:
        return jnp.zeros((lanes, size // cut.stride, *x.shape[2:]), x.dtype)

    rows = jax.eval_shape(partial(_stored, cut), items_like.rows)
    return Sequences(
        rows=jax.tree.map(room, rows, is_leaf=_is_frames),
        carry=jax.tree.map(starts, items_like.carry),
        levels=priorities.empty(lanes * size // cut.stride),
        head=jnp.zeros((), jnp.int32),  # each its own buffer: a buffer is donated once
        filled=jnp.zeros((), jnp.int32),
        unbroken=jnp.zeros(lanes, jnp.int32),
        edge=jax.tree.map(lambda x: jnp.zeros((lanes, *x.shape[2:]), x.dtype), items_like.edge),
        slots=slots,
    )


def _stored(cut: _Cut, rows: Tree) -> Tree:
    """A round's rows [b, T, ...], those of stacked frames as stories."""
    if cut.space is None:
        return rows
    return rows._replace(obs=pack_stacked(cut.space, rows.obs, rows.obs))


def _add(cut: _Cut, memory: Sequences, items: Stretch, key: Array) -> Sequences:
    del key
    lanes, added = items.rows.valid.shape
    size = memory.rows.valid.shape[1]
    # a restarted lane: its last row does not lead to this round's first one
    before, first = (memory.head - 1) % size, items.rows.first[:, 0]
    same = _same(memory.edge, jax.tree.map(lambda x: x[:, 0], items.edge), lanes)
    goes_on = memory.rows.valid[:, before] & ~first & same
    rows = memory.rows._replace(valid=memory.rows.valid.at[:, before].set(goes_on))
    # an episode's beginning needs nothing of what came before
    unbroken = jnp.where(same | first, memory.unbroken, 0)
    return memory._replace(
        rows=_put_rows(rows, _stored(cut, items.rows), memory.head),
        carry=jax.tree.map(partial(_put, at=memory.head // cut.stride), memory.carry, items.carry),
        levels=_weigh_anew(cut, memory, items, unbroken),
        head=(memory.head + added) % size,
        filled=jnp.minimum(memory.filled + added, size),
        unbroken=jnp.minimum(unbroken + added, size),
        edge=jax.tree.map(lambda x: x[:, 1], items.edge),
    )


def _put(kept: Array, new: Array, at: Array, axis: int = 1) -> Array:
    return lax.dynamic_update_slice_in_dim(kept, new, at, axis)


def _put_rows(kept: Tree, new: Tree, head: Array) -> Tree:
    """A round's rows, written at the head; stories in the place of whole rounds."""
    lanes, added = new.valid.shape

    def put(kept: Tree, new: Tree) -> Tree:
        if isinstance(kept, Frames):
            story = head // added * lanes
            return Frames(*(_put(k, n, story, axis=0) for k, n in zip(kept, new, strict=True)))
        return _put(kept, new, head)

    return jax.tree.map(put, kept, new, is_leaf=_is_frames)


def _weigh_anew(cut: _Cut, memory: Sequences, items: Stretch, unbroken: Array) -> priorities.Levels:
    """Weights after a round: complete sequences can be drawn, those that lost rows cannot."""
    stride, parts = cut.stride, cut.parts
    lanes, added = items.rows.valid.shape
    ended, slot = added // stride, memory.head // stride
    error = items.priority if cut.exponent is not None else jnp.ones((lanes, ended))
    if error is None:
        raise RondelError("Prioritised sequences need items with a `priority`, such as 1.")
    nth = jnp.arange(ended + parts - 1, dtype=jnp.int32)  # from the first that is complete now
    whole = unbroken[:, None] + (nth[None] + 1) * stride >= cut.length
    weight = jnp.pad(_weight(cut, error), ((0, 0), (0, parts - 1)))
    weight = jnp.where(whole & (nth[None] < ended), weight, 0.0)
    place = (slot + 1 - parts + nth) % (memory.rows.valid.shape[1] // stride)
    leaf = place[None] * lanes + jnp.arange(lanes, dtype=jnp.int32)[:, None]
    return priorities.put(memory.levels, leaf.reshape(-1), weight.reshape(-1))


def _weight(cut: _Cut, error: Array) -> Array:
    return (jnp.abs(error) + EPSILON) ** (cut.exponent or 0.0)


def _draw(cut: _Cut, memory: Sequences, key: Array, j: Array) -> tuple[SequenceBatch, Place]:
    del j
    lanes, size = memory.rows.valid.shape
    stored = lanes * jnp.maximum((memory.filled - cut.length) // cut.stride + 1, 0)
    leaf, weight, ratio = priorities.draw(memory.levels, memory.slots, key, stored)
    lane, start = place = leaf % lanes, leaf // lanes
    row = (start[:, None] * cut.stride + jnp.arange(cut.length, dtype=jnp.int32)[None]) % size

    def read(x: Array | Frames) -> Array:
        if isinstance(x, Frames):
            added = x.age.shape[1]
            return take(x, row // added * lanes + lane[:, None], row % added)
        return x.at[lane[:, None], row].get(mode="promise_in_bounds")

    rows = jax.tree.map(read, memory.rows, is_leaf=_is_frames)
    rows = rows._replace(valid=rows.valid & (weight > 0.0)[:, None])
    carry = jax.tree.map(lambda x: x.at[lane, start].get(mode="promise_in_bounds"), memory.carry)
    return SequenceBatch(rows, carry, ratio), place


def _rank(cut: _Cut, memory: Sequences, ticket: Place, feedback: Array) -> Sequences:
    if cut.exponent is None:
        return memory
    lane, start = ticket
    leaf = start * memory.rows.valid.shape[0] + lane
    return memory._replace(levels=priorities.assign(memory.levels, leaf, _weight(cut, feedback)))


def _is_frames(x: Tree) -> bool:
    return isinstance(x, Frames)


def _same(one: Tree, two: Tree, lanes: int) -> Array:
    """Lanes [b] in which two trees [b, ...] are equal."""
    same = jnp.ones(lanes, bool)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        same = same & (a == b).reshape(lanes, -1).all(1)
    return same


def _check(cut: _Cut, added: int, size: int, lanes: int, shards: int) -> None:
    length, stride = cut.length, cut.stride
    if added % stride:
        raise RondelError(
            f"rollout must be a multiple of the stride of sequences, {stride}, got {added}. "
            f"Use {-(-added // stride) * stride}."
        )
    if size < length + added:
        rows = -(-(length + added) // added) * added
        raise RondelError(
            f"capacity must be {rows * lanes * shards} or more: sequences have {length} steps, and "
            f"a round adds {added} in each of {lanes * shards} lanes."
        )
