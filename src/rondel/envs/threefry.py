"""A few random numbers for each lane, cheap enough for a step's inner loop.

The Threefry-2x32 generator of "Parallel random numbers: as easy as 1, 2, 3" (Salmon et al.,
2011), 20 rounds, as in `jax.random`, but unrolled: XLA makes one kernel of it, where the loop
that JAX lowers to on CPUs costs more than a whole step of a classic task (measured: CartPole with
one lane 32M steps/s against 1.1M).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from rondel.types import Array

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def uniform(keys: Array, count: int, low: float = 0.0, high: float = 1.0) -> tuple[Array, ...]:
    """`count` arrays [b] of float32 numbers in [low, high), each lane's from its own key of
    `keys` [b].

    >>> keys = jax.random.split(jax.random.key(0, impl="threefry2x32"), 8)
    >>> x, y = uniform(keys, 2, -0.1, 0.1)
    """
    data = jax.random.key_data(keys)
    words = [w for i in range((count + 1) // 2) for w in threefry(data[:, 0], data[:, 1], i)]
    return tuple(low + _fraction(word) * (high - low) for word in words[:count])


def threefry(key0: Array, key1: Array, counter: int) -> tuple[Array, Array]:
    """Two random words [b] (uint32) for each key, whose halves are `key0` and `key1` [b]."""
    schedule = (key0, key1, key0 ^ key1 ^ np.uint32(0x1BD11BDA))
    x, y = key0, key1 + np.uint32(counter)
    for group in range(5):
        for bits in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << np.uint32(bits)) | (y >> np.uint32(32 - bits))) ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def _fraction(word: Array) -> Array:
    """The upper 23 bits as a float32 in [0, 1): they become the digits of a number in [1, 2)."""
    digits = (word >> np.uint32(9)) | np.uint32(0x3F800000)
    return jax.lax.bitcast_convert_type(digits, jnp.float32) - 1.0
