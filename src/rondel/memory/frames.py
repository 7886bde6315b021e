"""Stacked observations, stored frame by frame: each frame once, not once per observation.

In a space with `frames` = F an observation is the one before, shifted by one with a new frame at
its end, or (where an episode begins) one frame F times. So a story of rows is stored as its newest
frames, the F - 1 before the first of them, and the age of each row: how many rows back its frames
go before they repeat. Observations come back bit for bit.

Shapes: b lanes, n rows of a story; a frame is the F-th part of an observation's first axis. In a
replay, rounds of T rows and `ahead` more are written into a ring of P rows.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from rondel.ops.select import select
from rondel.spaces import Box, Space
from rondel.types import Array, Tree


class Frames(NamedTuple):
    """The frames of stories, lane by lane."""

    newest: Array  # [b, F - 1 + n, ...]: that of row t is at F - 1 + t
    age: Array  # [b, n] int32: 0 .. F - 1; frame i, counted from the newest, is min(i, age) back

    @property
    def stacked(self) -> int:
        """F."""
        return self.newest.shape[1] - self.age.shape[1] + 1


class Film(NamedTuple):
    """The frames of the newest rounds, in a ring.

    P is greater than the rows whose observations can be asked for, so that the frames before the
    oldest of them are still there.
    """

    frames: Frames  # of P + ahead rows
    head: Array  # () int32: the row that the next round is written at


def stacked_of(space: Space | None, obs: Tree) -> Tree:
    """The number of frames that each array of obs [b, n, ...] stacks.

    It is 1, stored unchanged, without a space and where the array is not [b, n] of it.
    """
    if space is None:
        return jax.tree.map(lambda _: 1, obs)

    def stacked(part: Space, x: Array) -> int:
        return part.frames if isinstance(part, Box) and x.shape[2:] == part.shape else 1

    return jax.tree.map(stacked, space, obs)


def pack_stacked(space: Space, obs: Tree, other: Tree) -> Tree:
    """Arrays of obs [b, n, ...] that stack frames as `Frames`; in other places those of `other`."""

    def one(stacked: int, x: Array, instead: Array) -> Array | Frames:
        return pack(x, stacked) if stacked > 1 else instead

    return jax.tree.map(one, stacked_of(space, obs), obs, other)


def pack(obs: Array, stacked: int, age: Array | None = None) -> Frames:
    """Observations [b, n, ...] frame by frame; `age` [b] is that of row 0, F - 1 by default.

    With an age of F - 1 row 0 may be any observation. With less its own older frames are still
    the first F - 1 of `newest`, but not those that belong there.
    """
    lanes, rows = obs.shape[:2]
    split = obs.reshape(lanes, rows, stacked, obs.shape[2] // stacked, *obs.shape[3:])
    differs = (split[:, 1:, :-1] != split[:, :-1, 1:]).astype(jnp.uint8)
    # the maximum of bytes is three times as fast as `all` of bools
    shifted = differs.max(axis=tuple(range(2, differs.ndim)), initial=0) == 0
    if age is None:
        age = jnp.full(lanes, stacked - 1, jnp.int32)
    row = jnp.arange(rows, dtype=jnp.int32)[None]
    begin = -age[:, None]  # the row at which the story of row 0 begins, or one that is far enough
    begins = jnp.concatenate([begin, jnp.where(shifted, begin, row[:, 1:])], axis=1)
    return Frames(
        newest=jnp.concatenate([split[:, 0, :-1], split[:, :, -1]], axis=1),
        age=jnp.minimum(row - lax.cummax(begins, axis=1), stacked - 1),
    )


def take(frames: Frames, lane: Array, row: Array) -> Array:
    """The observations [*k, ...] of rows [*k] of lanes [*k]."""
    last, lead = frames.stacked - 1, lane.shape
    age = frames.age.at[lane, row].get(mode="promise_in_bounds")
    oldest_first = jnp.arange(last, -1, -1, dtype=jnp.int32).reshape(*[1] * len(lead), -1)
    place = lane[..., None], row[..., None] + last - jnp.minimum(oldest_first, age[..., None])
    found = frames.newest.at[place].get(mode="promise_in_bounds")
    # keeps XLA from fusing what follows, such as bytes becoming floats, into the gather
    found = lax.optimization_barrier(found)
    return found.reshape(*lead, -1, *frames.newest.shape[3:])


def take_stories(frames: Frames, lane: Array) -> Array:
    """All observations [k, n, ...] of lanes [k]."""
    shape = lane.size, frames.age.shape[1]
    row = jnp.broadcast_to(jnp.arange(shape[1], dtype=jnp.int32)[None], shape)
    return take(frames, jnp.broadcast_to(lane[:, None], shape), row)


def blank(like: Array, stacked: int, rows: int, ahead: int) -> Film:
    """A film for rounds like [b, T + ahead, ...], from which the newest `rows` can be taken."""
    length = like.shape[1] - ahead
    size = rows + -(-(stacked - 1 + ahead) // length) * length + ahead
    part = jax.eval_shape(lambda x: pack(x, stacked), like)
    newest, age = (
        jnp.zeros((x.shape[0], x.shape[1] - like.shape[1] + size, *x.shape[2:]), x.dtype)
        for x in part
    )
    return Film(Frames(newest, age), jnp.zeros((), jnp.int32))


def record(film: Film, obs: Array, restarted: Array, ahead: int) -> Film:
    """Write a round [b, T + ahead, ...]; `restarted` [b]: lanes that do not continue.

    A lane that continues begins with observations that the film has already, and keeps the frames
    before them, perhaps of another episode. The first row of a restarted lane brings its own F - 1
    frames, which overwrite the last F - 1 rows before it.
    """
    (newest, age), head = film
    # the F - 1 frames before row 0 are there for the first row alone
    restarted = restarted | (head == 0)
    older = film.frames.stacked - 1
    age_before = lax.dynamic_index_in_dim(age, head, axis=1, keepdims=False)
    new = pack(obs, older + 1, jnp.where(restarted, older, age_before))
    kept = lax.dynamic_slice_in_dim(newest, head, older, axis=1)
    begin = select(restarted, new.newest[:, :older], kept)
    written = jnp.concatenate([begin, new.newest[:, older:]], axis=1)
    return Film(
        Frames(
            lax.dynamic_update_slice_in_dim(newest, written, head, axis=1),
            lax.dynamic_update_slice_in_dim(age, new.age, head, axis=1),
        ),
        (head + obs.shape[1] - ahead) % (age.shape[1] - ahead),
    )


def row_of(film: Film, ago: Array, ahead: int) -> Array:
    """The row that was written `ago` rows before the newest, [k]; those after it follow it."""
    return (film.head - 1 - ago) % (film.frames.age.shape[1] - ahead)
