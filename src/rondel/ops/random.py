"""Random keys from what they are for, and numbers of many keys at once, cheap in an inner loop.

The Threefry-2x32 generator of Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011),
20 rounds, as in `jax.random`, but unrolled: XLA makes one kernel of it, while JAX's loop costs more
on CPUs than a whole step of a classic task. `keys` are typed keys of that generator, [...]; all
functions work element by element, so a lane's numbers depend on its key alone.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from rondel.types import Array

IMPLEMENTATION = "threefry2x32"
_SHUFFLES = 4  # of `permutations`, two steps each
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def key(seed: int | Array) -> Array:
    """A key from an integer below 2**32."""
    words = jnp.stack([jnp.uint32(0), jnp.asarray(seed, jnp.uint32)])
    return jax.random.wrap_key_data(words, impl=IMPLEMENTATION)


def fold(keys: Array, one: int | Array, two: int | Array = 0) -> Array:
    """New keys from keys and two integers; all shapes have one rank and broadcast.

    Fold a key or draw from it, not both: they use the same words.
    """
    data = jax.random.key_data(keys)
    words = threefry(data[..., 0], data[..., 1], _word(one), _word(two))
    return jax.random.wrap_key_data(jnp.stack(words, -1), impl=IMPLEMENTATION)


def purpose_key(
    seed: int | Array, purpose: int, one: int | Array = 0, two: int | Array = 0
) -> Array:
    """The key of a purpose, and of two numbers such as the round and the draw.

    A run's numbers are then the same wherever its pieces run.
    """
    return fold(fold(key(seed), purpose), one, two)


def per_copy(key: Array, copy: int, copies: int) -> Array:
    """A key for each of several copies; a single copy uses the key itself."""
    return key if copies == 1 else fold(key, copy)


def per_lane(key: Array, lane: Array) -> Array:
    """One key for each lane [b]."""
    return fold(key[None], lane)


def per_step_and_lane(key: Array, steps: int, lane: Array) -> Array:
    """One key for each step and lane [steps, b]."""
    return fold(key[None, None], jnp.arange(steps)[:, None], lane[None, :])


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


def permutations(key: Array, count: int, length: int) -> Array:
    """`count` random orders of `length` rows, [count, length] int32, without a sort (20 x as fast).

    A Feistel network maps 0 .. 2**size - 1 onto itself: each half of the bits in turn is xored with
    a keyed hash of the other. What lands at `length` or beyond is mapped again until it does not.

    Mitchell et al., Bandwidth-Optimal Random Shuffling for GPUs, arXiv 2106.06161.
    """
    size = max(length - 1, 3).bit_length()
    low = size // 2
    high_mask, low_mask = (1 << size - low) - 1, (1 << low) - 1
    keys = bits(key, _SHUFFLES * 2 * count).reshape(_SHUFFLES, 2, count, 1)

    def shuffle(x: Array) -> Array:
        left, right = x >> low, x & low_mask
        for one, two in keys:
            left = left ^ (_hash(right ^ one) & high_mask)
            right = right ^ (_hash(left ^ two) & low_mask)
        return left << low | right

    def beyond(x: Array) -> Array:
        return x >= length

    rows = shuffle(jnp.broadcast_to(jnp.arange(length, dtype=jnp.uint32), (count, length)))
    if length < 1 << size:
        rows = jax.lax.while_loop(
            lambda x: beyond(x).any(), lambda x: jnp.where(beyond(x), shuffle(x), x), rows
        )
    return rows.astype(jnp.int32)


def _hash(x: Array) -> Array:
    """Mix 32 bits so that each of them changes half of all (Wellons' `lowbias32`)."""
    x = (x ^ x >> 16) * jnp.uint32(0x7FEB352D)
    x = (x ^ x >> 15) * jnp.uint32(0x846CA68B)
    return x ^ x >> 16


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
