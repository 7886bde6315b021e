"""Random keys, made from what they are for.

A key depends on its purpose, the round, the step and the lane, so a run's numbers are the same
wherever its pieces run. Threefry only: other generators change under vmap.
"""

from __future__ import annotations

import jax.numpy as jnp

from rondel.execution.hostenv.seeds import Purpose
from rondel.ops import random
from rondel.types import Array


def purpose_key(
    seed: int | Array, purpose: Purpose, one: int | Array = 0, two: int | Array = 0
) -> Array:
    """The key of a purpose, and of two numbers such as the round and the draw."""
    return random.fold(random.fold(random.key(seed), int(purpose)), one, two)


def per_copy(key: Array, copy: int, copies: int) -> Array:
    """A key for each of several copies; a single copy uses the key itself."""
    return key if copies == 1 else random.fold(key, copy)


def per_lane(key: Array, lane: Array) -> Array:
    """One key for each lane [b]."""
    return random.fold(key[None], lane)


def per_step_and_lane(key: Array, steps: int, lane: Array) -> Array:
    """One key for each step and lane [steps, b]."""
    return random.fold(key[None, None], jnp.arange(steps)[:, None], lane[None, :])
