"""Purposes of randomness, and the seeds of environments outside JAX. It imports no jax."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


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
    LABEL = 8


def lane_seeds(
    seed: int, purpose: Purpose, lanes: int, *more: int, first_lane: int = 0
) -> np.ndarray:
    """Integers below 2**31 for the lanes of a host environment [lanes]."""
    meaning = [seed, int(purpose), *more]
    each = range(first_lane, first_lane + lanes)
    words = [np.random.SeedSequence([*meaning, i]).generate_state(1) for i in each]
    return np.concatenate(words).astype(np.int64) & 0x7FFFFFFF
