"""Randomness is keyed by meaning, never by place.

The key of a draw says what it is for (a purpose, the round, the step, the lane), so a run's
numbers are the same wherever its pieces run. Threefry only: other generators change under vmap.
"""

from __future__ import annotations

from enum import IntEnum

import jax.numpy as jnp
import numpy as np

from rondel.ops import random
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


def key_of(
    seed: int | Array, purpose: Purpose, one: int | Array = 0, two: int | Array = 0
) -> Array:
    """The key of a purpose, and of two numbers such as the round and the draw."""
    return random.fold(random.fold(random.key(seed), int(purpose)), one, two)


def per_lane(key: Array, lane: Array) -> Array:
    """One key for each lane [b]."""
    return random.fold(key[None], lane)


def per_step_and_lane(key: Array, steps: int, lane: Array) -> Array:
    """One key for each step and lane [steps, b]."""
    return random.fold(key[None, None], jnp.arange(steps)[:, None], lane[None, :])


def lane_seeds(seed: int, purpose: Purpose, lanes: int, *more: int) -> np.ndarray:
    """Whole numbers below 2**31 for the lanes of a host environment [lanes]."""
    meaning = [seed, int(purpose), *more]
    words = [np.random.SeedSequence([*meaning, i]).generate_state(1) for i in range(lanes)]
    return np.concatenate(words).astype(np.int64) & 0x7FFFFFFF
