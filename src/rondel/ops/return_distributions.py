"""Models of the return: its mean, a distribution over fixed values, or quantiles.

`out` are a network's outputs for each action: [..., actions], or [..., actions, atoms] of a
distribution. Rows to learn from are those of the action taken: [n] or [n, atoms].

Bellemare et al., A Distributional Perspective on Reinforcement Learning, arXiv 1707.06887; Dabney
et al., Distributional Reinforcement Learning with Quantile Regression, arXiv 1710.10044.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rondel.types import Array

EPSILON = 1e-3  # of `rescale`: keeps the scale from getting flat far out


class Misfit(NamedTuple):
    """The errors of a network against its targets [n]."""

    loss: Array
    td: Array  # the expected return minus that of the target
    priority: Array  # for a prioritised replay


class ReturnModel(NamedTuple):
    """How a network's outputs represent the return."""

    atoms: int | None  # outputs per action; None: one, without an axis
    mean: Callable[[Array], Array]  # (out) -> [..., actions]
    # (out, action [...]) -> outputs of that action: [...] or [..., atoms]
    of: Callable[[Array, Array], Array]
    # (taken, reward [n], discount [n], following): `following` are outputs for the successor,
    # through which no gradient flows
    misfit: Callable[[Array, Array, Array, Array], Misfit]


def expected() -> ReturnModel:
    """The mean, by the Huber loss of TD errors."""

    def misfit(taken: Array, reward: Array, discount: Array, following: Array) -> Misfit:
        td = taken - jax.lax.stop_gradient(reward + discount * following)
        return Misfit(optax.losses.huber_loss(td), td, jnp.abs(td))

    return ReturnModel(None, lambda out: out, _one_of, misfit)


def rescaled(epsilon: float = EPSILON) -> ReturnModel:
    """The mean on the scale of `rescale`, by the Huber loss of TD errors on it.

    The error is taken - h(reward + discount h⁻¹(following)), so large rewards need no clipping.
    """

    def misfit(taken: Array, reward: Array, discount: Array, following: Array) -> Misfit:
        target = rescale(reward + discount * restore(following, epsilon), epsilon)
        td = taken - jax.lax.stop_gradient(target)
        return Misfit(optax.losses.huber_loss(td), td, jnp.abs(td))

    return ReturnModel(None, lambda out: restore(out, epsilon), _one_of, misfit)


def categorical(low: float, high: float, atoms: int) -> ReturnModel:
    """C51: logits of `atoms` values from low to high, by the cross-entropy with the target.

    Priorities are divergences from the target, as in Rainbow: Hessel et al., arXiv 1710.02298.
    """

    def mean(logits: Array) -> Array:
        values = jnp.linspace(low, high, atoms)
        return jnp.sum(jax.nn.softmax(logits) * _in_last(values, logits), -1)

    def misfit(taken: Array, reward: Array, discount: Array, following: Array) -> Misfit:
        values = jnp.linspace(low, high, atoms)
        moved = reward[:, None] + discount[:, None] * values[None]
        target = jax.lax.stop_gradient(project(moved, jax.nn.softmax(following), values))
        loss = -jnp.sum(target * jax.nn.log_softmax(taken), -1)
        target_entropy = -jnp.sum(jax.scipy.special.xlogy(target, target), -1)
        td = mean(taken) - jax.lax.stop_gradient(reward + discount * mean(following))
        return Misfit(loss, td, jnp.maximum(loss - target_entropy, 0.0))  # despite rounding

    return ReturnModel(atoms, mean, _several_of, misfit)


def quantiles(atoms: int) -> ReturnModel:
    """QR-DQN: quantiles at the midpoints of `atoms` equal shares, by their Huber loss."""

    def misfit(taken: Array, reward: Array, discount: Array, following: Array) -> Misfit:
        target = jax.lax.stop_gradient(reward[:, None] + discount[:, None] * following)
        td = taken.mean(-1) - target.mean(-1)
        return Misfit(quantile_huber(taken, target), td, jnp.abs(td))

    return ReturnModel(atoms, lambda out: out.mean(-1), _several_of, misfit)


def project(moved: Array, share: Array, values: Array) -> Array:
    """Shares [n, k] of values `moved` [n, k] as shares [n, atoms] of evenly spaced `values`.

    Each value's share is split between its two neighbours, the nearer one getting more (equation 7
    of C51); values outside go to the ends.
    """
    gap = values[1] - values[0]
    inside = jnp.clip(moved, values[0], values[-1])
    distance = jnp.abs(inside[:, None, :] - values[None, :, None]) / gap
    return jnp.sum(jnp.clip(1.0 - distance, 0.0, 1.0) * share[:, None, :], -1)


def quantile_huber(quantiles: Array, target: Array) -> Array:
    """Sum over i of the mean over j of |τ_i - 1{u < 0}| H(u), u = target_j - quantile_i: [n].

    τ_i = (2 i - 1) / 2 N for i from 1 to N, H is the Huber loss with its corner at 1 (equation 10
    of QR-DQN); `quantiles` [n, N], `target` [n, M].
    """
    count = quantiles.shape[-1]
    level = (jnp.arange(count)[None, :, None] + 0.5) / count
    error = target[:, None, :] - quantiles[:, :, None]
    tilt = jnp.abs(level - (error < 0.0))
    return jnp.sum(jnp.mean(tilt * optax.losses.huber_loss(error), -1), -1)


def rescale(x: Array, epsilon: float = EPSILON) -> Array:
    """h(x) = sgn(x) (√(|x| + 1) - 1) + ε x, a scale on which large values differ less.

    Pohlen et al., Observe and Look Further: Achieving Consistent Performance on Atari, arXiv
    1805.11593, proposition A.2.
    """
    return jnp.sign(x) * (jnp.sqrt(jnp.abs(x) + 1.0) - 1.0) + epsilon * x


def restore(y: Array, epsilon: float = EPSILON) -> Array:
    """The x with h(x) = y.

    That is sgn(y) (((√(1 + 4ε a) - 1) / 2ε)² - 1) with a = |y| + 1 + ε, written without the
    difference of two near numbers, which would leave few digits of float32.
    """
    a = jnp.abs(y) + 1.0 + epsilon
    root = 2.0 * a / (jnp.sqrt(1.0 + 4.0 * epsilon * a) + 1.0)
    return jnp.sign(y) * (root**2 - 1.0)


def _one_of(out: Array, action: Array) -> Array:
    # a sum over a one-hot is cheaper on CPU than a gather, and its gradient than a scatter
    return jnp.sum(out * jax.nn.one_hot(action, out.shape[-1]), -1)


def _several_of(out: Array, action: Array) -> Array:
    return jnp.sum(out * jax.nn.one_hot(action, out.shape[-2])[..., None], -2)


def _in_last(values: Array, like: Array) -> Array:
    return jnp.broadcast_to(values, like.shape)
