"""Returns and advantages from a round's rows.

Shapes: T rows of b lanes, time first. Row t is the step from `obs[t]` to its true successor
`obs[t + 1]`, an episode's last observation included: the step after an end only resets (`valid` is
False). So a time limit bootstraps where a termination does not.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from rondel.types import Array, Tree


class VTrace(NamedTuple):
    """Estimates for a policy from another policy's experience: [T, b] each."""

    target: Array  # for the values
    advantage: Array  # weight of the policy's gradient; 0 where a row is not valid


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
    return _summed(delta, decay)


def vtrace(
    ratio: Array,
    reward: Array,
    value: Array,
    terminated: Array,
    truncated: Array,
    valid: Array,
    discount: float | Array,
    trace_lambda: float | Array = 1.0,
    clip_rho: float = 1.0,
    clip_c: float = 1.0,
) -> VTrace:
    """Targets and advantages of the learning policy, from the actions of an older one.

    `ratio` is π(a|s) / μ(a|s), of the learning policy to the one that acted; `value` is
    [T + 1, b], of the observations; everything else [T, b]. With g = discount, ρ = min(clip_rho,
    ratio) and c = trace_lambda * min(clip_c, ratio):

        delta[t] = ρ[t] * (reward[t] + g * (1 - terminated[t]) * value[t + 1] - value[t])
        more[t] = delta[t] + g * c[t] * (1 - done[t]) * more[t + 1]
        target[t] = value[t] + more[t]
        advantage[t] = delta[t] + ρ[t] * g * trace_lambda * (1 - done[t]) * more[t + 1]

    With trace_lambda = 1 the last is the paper's ρ[t] * (reward[t] + g * target[t + 1] - value[t]);
    with ratios of 1 it is `gae`.

    Espeholt et al., IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
    Architectures, arXiv 1802.01561, equation 1 and remark 2.
    """
    rho, c = jnp.minimum(clip_rho, ratio), jnp.minimum(clip_c, ratio)
    delta = reward + discount * jnp.where(terminated, 0.0, value[1:]) - value[:-1]
    delta = jnp.where(valid, rho * delta, 0.0)
    decay = jnp.where(valid & ~(terminated | truncated), discount * trace_lambda, 0.0)
    more = _summed(delta, decay * c)
    after = jnp.concatenate([more[1:], jnp.zeros_like(more[:1])])
    return VTrace(value[:-1] + more, delta + rho * decay * after)


def returns_to_go(
    reward: Array,
    value: Array | None,
    terminated: Array,
    truncated: Array,
    valid: Array,
    discount: float | Array,
) -> tuple[Array, Array]:
    """The return of each row up to its episode's end, and the row of that end: [T, b] each.

        return_[t] = reward[t] + discount * (1 - done[t]) * return_[t + 1]

    Where an episode is truncated, the `value` [T + 1, b] of its last observation replaces the rest;
    without values nothing does. The end of an episode that goes on beyond the rows is T, and its
    return has no meaning; likewise where `valid` is False.

    Williams, Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement
    Learning (1992).
    """
    length = reward.shape[0]
    done = terminated | truncated
    if value is not None:
        reward = reward + discount * jnp.where(truncated & ~terminated, value[1:], 0.0)
    return_ = _summed(reward, jnp.where(done, 0.0, discount))
    row = jnp.arange(length, dtype=jnp.int32)[:, None]
    ends = jnp.where(done, row, length)
    return return_, lax.cummin(ends, axis=0, reverse=True)


def n_step_returns(
    reward: Array,
    terminated: Array,
    truncated: Array,
    valid: Array,
    discount: float | Array,
    n: int,
) -> tuple[Array, Array, Array, Array]:
    """n-step returns of T rows: (return_, discount, offset, valid), [T, b] each.

    The rows are [n - 1 + T, b]: item t takes rows t .. t + n - 1, up to the first that is done.

        return_[t] = sum of discount**k * reward[t + k] for k < offset[t]
        target = return_[t] + discount[t] * value of obs[t + offset[t]],   1 <= offset[t] <= n

    `discount[t]` is discount**offset[t], or 0 where the chain ends in a termination: a truncation
    still bootstraps. Where `valid[t]` is False the other three have no meaning.

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


def swap_time(tree: Tree) -> Tree:
    """Arrays [T, b, ...] as [b, T, ...], or the other way round."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), tree)


def _summed(gain: Array, decay: Array) -> Array:
    """sum[t] = gain[t] + decay[t] * sum[t + 1], from the last row back; [T, b]."""

    def back(after: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        now = row[0] + row[1] * after
        return now, now

    _, sums = lax.scan(back, jnp.zeros_like(gain[0]), (gain, decay), reverse=True, unroll=2)
    return sums
