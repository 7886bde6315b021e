"""Randomness is keyed by meaning, never by place.

The key of a draw says what it is for (a purpose, the round, the step, the lane), so a run's
numbers are the same wherever its pieces run. Threefry only: other generators change under vmap.
"""

from __future__ import annotations

from enum import IntEnum

import jax
import numpy as np

from rondel.types import Array


class Purpose(IntEnum):
    """What a key is for. The numbers are part of a run's identity: append, never reorder."""

    INIT = 0
    ENV = 1
    START = 2
    ACT = 3
    ADD = 4
    DRAW = 5
    GRADIENT = 6
    EVALUATE = 7


def root(seed: int | Array) -> Array:
    """The key that all others of a run come from."""
    return jax.random.key(seed, impl="threefry2x32")


def fold(key: Array, *numbers: int | Array) -> Array:
    """A key for the meaning that the numbers spell."""
    for number in numbers:
        key = jax.random.fold_in(key, number)
    return key


def per_lane(key: Array, lane: Array) -> Array:
    """One key for each lane [b]."""
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(lane)


def lane_seeds(seed: int, purpose: Purpose, lanes: int, *more: int) -> np.ndarray:
    """Whole numbers below 2**31 for the lanes of a host environment [lanes]."""
    meaning = [seed, int(purpose), *more]
    words = [np.random.SeedSequence([*meaning, i]).generate_state(1) for i in range(lanes)]
    return np.concatenate(words).astype(np.int64) & 0x7FFFFFFF
