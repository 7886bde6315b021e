"""Returns and advantages from a round's rows.

Shapes: T rows of b lanes, time first. Row t is the step from `obs[t]` to `obs[t + 1]`, which is the
true successor always, an episode's last observation included: the step after an end only resets
(`valid` is False). So a time limit bootstraps where a termination does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import lax

if TYPE_CHECKING:
    from rondel.types import Array


def gae(
    reward: Array,
    value: Array,
    terminated: Array,
    truncated: Array,
    valid: Array,
    discount: float | Array,
    gae_lambda: float | Array,
) -> Array:
    """Generalised advantage estimates [T, b]; 0 where `valid` is False.

    `value` is [T + 1, b], of the observations; everything else [T, b]. With c = discount:

        delta[t] = reward[t] + c * (1 - terminated[t]) * value[t + 1] - value[t]
        advantage[t] = delta[t] + c * gae_lambda * (1 - done[t]) * advantage[t + 1]

    Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage Estimation,
    arXiv 1506.02438.
    """
    delta = reward + discount * jnp.where(terminated, 0.0, value[1:]) - value[:-1]
    delta = jnp.where(valid, delta, 0.0)
    decay = jnp.where(valid & ~(terminated | truncated), discount * gae_lambda, 0.0)

    def back(after: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        advantage = row[0] + row[1] * after
        return advantage, advantage

    _, advantage = lax.scan(back, jnp.zeros_like(delta[0]), (delta, decay), reverse=True, unroll=2)
    return advantage


def n_step(
    reward: Array,
    terminated: Array,
    truncated: Array,
    valid: Array,
    discount: float | Array,
    n: int,
) -> tuple[Array, Array, Array, Array]:
    """What `n` steps from each of T rows earn: (return_, discount, offset, valid), [T, b] each.

    The rows are [n - 1 + T, b]: item t takes rows t .. t + n - 1, up to the first that is done.

        return_[t] = sum of discount**k * reward[t + k] for k < offset[t]
        target = return_[t] + discount[t] * value of obs[t + offset[t]],   1 <= offset[t] <= n

    `discount[t]` is discount**offset[t], or 0 where the chain ends in a termination: a truncation
    still bootstraps. Where `valid[t]` is False the other three say nothing.

    Sutton, Learning to Predict by the Methods of Temporal Differences (1988).
    """
    length = reward.shape[0] - (n - 1)
    done = terminated | truncated
    going = jnp.ones(reward[:length].shape, bool)  # the chain has not ended before row t + k
    power = jnp.ones(going.shape, reward.dtype)
    return_ = jnp.zeros(going.shape, reward.dtype)
    offset = jnp.zeros(going.shape, jnp.int32)
    for k in range(n):
        rows = slice(k, k + length)
        return_ = return_ + jnp.where(going, power * reward[rows], 0.0)
        power = jnp.where(going, power * jnp.where(terminated[rows], 0.0, discount), power)
        offset = offset + going
        going = going & ~done[rows]
    return return_, power, offset, valid[:length]
