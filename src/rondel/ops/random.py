"""Random numbers for many keys at once, cheap enough for a step's inner loop.

The Threefry-2x32 generator of Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011),
20 rounds, as in `jax.random`, but unrolled: XLA makes one kernel of it, where the loop that JAX
lowers it to on CPUs costs more than a whole step of a classic task. `keys` are typed keys of that
generator, [...]; all functions work element by element, so a lane's numbers are its own.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from rondel.types import Array

IMPLEMENTATION = "threefry2x32"
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def key(seed: int | Array) -> Array:
    """A key from a whole number below 2**32."""
    words = jnp.stack([jnp.uint32(0), jnp.asarray(seed, jnp.uint32)])
    return jax.random.wrap_key_data(words, impl=IMPLEMENTATION)


def fold(keys: Array, one: int | Array, two: int | Array = 0) -> Array:
    """New keys from keys and two whole numbers; all of shapes that broadcast by equal rank.

    Fold a key or draw from it, not both: they use the same words.
    """
    data = jax.random.key_data(keys)
    words = threefry(data[..., 0], data[..., 1], _word(one), _word(two))
    return jax.random.wrap_key_data(jnp.stack(words, -1), impl=IMPLEMENTATION)


def bits(keys: Array, count: int) -> Array:
    """`count` random words for each key: [..., count] uint32."""
    data = jax.random.key_data(keys)[..., None, :]
    half = -(-count // 2)
    counter = jnp.arange(half, dtype=jnp.uint32).reshape(*[1] * keys.ndim, half)
    words = threefry(data[..., 0], data[..., 1], counter, jnp.zeros_like(counter))
    return jnp.concatenate(words, -1)[..., :count]


def uniform(keys: Array, count: int, low: float = 0.0, high: float = 1.0) -> Array:
    """`count` numbers in [low, high) for each key: [..., count] float32."""
    # the upper 23 bits become the digits of a number in [1, 2)
    digits = (bits(keys, count) >> np.uint32(9)) | np.uint32(0x3F800000)
    part = jax.lax.bitcast_convert_type(digits, jnp.float32) - 1.0
    return part if (low, high) == (0.0, 1.0) else low + part * (high - low)


def normal(keys: Array, count: int) -> Array:
    """`count` standard normal numbers for each key: [..., count] float32."""
    # as jax.random.normal does it: the inverse distribution function, on an open interval
    low = np.nextafter(np.float32(-1.0), np.float32(0.0))
    centred = jnp.maximum(low, 2.0 * uniform(keys, count) - 1.0)
    return np.float32(np.sqrt(2.0)) * jax.lax.erf_inv(centred)


@jax.jit  # traced once for all its uses in a process
def threefry(key0: Array, key1: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """Two random words for each key (key0, key1) and counter (x, y); all uint32, broadcast."""
    schedule = (key0, key1, key0 ^ key1 ^ np.uint32(0x1BD11BDA))
    x, y = x + key0, y + key1
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << np.uint32(turn)) | (y >> np.uint32(32 - turn))) ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x, y


def _word(number: int | Array) -> Array:
    return jnp.asarray(np.uint32(number) if isinstance(number, int) else number).astype(jnp.uint32)
