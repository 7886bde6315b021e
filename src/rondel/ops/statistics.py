"""Means over valid rows, and running statistics of observations and discounted returns.

Running statistics normalise observations and scale rewards. A policy sums up its lanes one by one
([T, b, ...] -> [b, ...]), the learner merges all lanes [B, ...] in order. So the result does not
depend on which copy acted which lanes.

Chan, Golub, LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances
(1979), is the merge; it needs no difference of large sums.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from rondel.types import Array, Tree

MAX_COUNT = 2.0**24
"""Samples that count at most. Up to here float32 counts exactly and is still moved by one sample;
beyond, older samples fade so that the newest always weigh 1 / MAX_COUNT."""

EPSILON = 1e-8  # added to variances


class Moments(NamedTuple):
    """Count, mean and sum of squared deviations of a tree's float leaves; other leaves are None."""

    count: Array  # type: ignore[assignment]  # () float32, or [b] per lane
    mean: Tree  # of the leaf's shape without time, float32
    m2: Tree  # likewise


class ReturnSummary(NamedTuple):
    """The effect of a round on each lane's discounted return, as a function of it: [b] each.

    G[t] = a[t] * G_0 + c[t], with G_0 the return that came into the round.
    """

    count: Array  # type: ignore[assignment]  # valid rows
    decay: Array  # a after the last row: 0 if an episode ended
    gain: Array  # c after the last row
    mean_a: Array
    mean_c: Array
    aa: Array  # sum of (a - mean_a)**2 over valid rows, and so on
    ac: Array
    cc: Array


class ReturnScale(NamedTuple):
    """The discounted return of every lane, and the moments of all returns so far."""

    running: Array  # [B]
    moments: Moments  # of ()


def masked_mean(x: Array, valid: Array) -> Array:
    """Mean of `x` where `valid`, a mask of its shape; 0 if no row is valid."""
    return jnp.sum(jnp.where(valid, x, 0.0)) / jnp.maximum(jnp.sum(valid), 1)


def standardise(x: Array, valid: Array, epsilon: float = 1e-8) -> Array:
    """`x` with zero mean and unit deviation over the valid rows."""
    centred = x - masked_mean(x, valid)
    return centred / (jnp.sqrt(masked_mean(centred**2, valid)) + epsilon)


def no_moments(like: Tree) -> Moments:
    """Empty moments, for samples of the shapes of `like`."""

    def zeros() -> Tree:  # called twice: a buffer can be donated only once
        return jax.tree.map(lambda x: jnp.zeros(x.shape) if _is_float(x) else None, like)

    return Moments(jnp.zeros(()), zeros(), zeros())


def moments_of(x: Tree, valid: Array) -> Moments:
    """Each lane's moments over time, of valid rows: leaves [T, b, ...] become [b, ...]."""
    count = valid.sum(axis=0, dtype=jnp.float32)

    def over_time(terms: Array) -> Array:
        mask = _expand(valid, terms)
        return jnp.where(mask, terms, 0.0).sum(axis=0)

    def mean_of(leaf: Array) -> Array | None:
        if not _is_float(leaf):
            return None
        total = over_time(leaf.astype(jnp.float32))
        return total / _expand(jnp.maximum(count, 1.0), total)

    def m2_of(leaf: Array, mean: Array | None) -> Array | None:
        return None if mean is None else over_time((leaf.astype(jnp.float32) - mean[None]) ** 2)

    mean = jax.tree.map(mean_of, x)
    return Moments(count, mean, jax.tree.map(m2_of, x, mean))


def merge(moments: Moments, per_lane: Moments) -> Moments:
    """Merge `moments` with those of all lanes [B, ...]: lanes in order first, then their sum."""
    nothing = jax.tree.map(jnp.zeros_like, moments)
    new, _ = lax.scan(lambda whole, lane: (_join(whole, lane), None), nothing, per_lane)
    kept = jnp.minimum(moments.count, MAX_COUNT - jnp.minimum(new.count, MAX_COUNT))
    share = kept / jnp.maximum(moments.count, 1.0)
    faded = Moments(kept, moments.mean, jax.tree.map(lambda m2: m2 * share, moments.m2))
    return _join(faded, new)


def normalise(moments: Moments, x: Tree, clip: float) -> Tree:
    """(x - mean) / deviation, clipped at ±clip, for float leaves [..., *sample]; others unchanged.

    Before the first sample nothing is shifted or scaled.
    """
    seen = moments.count > 0.0

    def one(leaf: Array, mean: Array | None, m2: Array | None) -> Array:
        if mean is None or m2 is None:
            return leaf
        variance = jnp.where(seen, m2 / jnp.maximum(moments.count, 1.0), 1.0)
        centred = leaf - jnp.broadcast_to(mean, leaf.shape)
        scaled = centred * jnp.broadcast_to(lax.rsqrt(variance + EPSILON), leaf.shape)
        return jnp.clip(scaled, -clip, clip).astype(leaf.dtype)

    return jax.tree.map(one, x, moments.mean, moments.m2)


def no_returns(lanes: int) -> ReturnScale:
    """The state before the first round."""
    return ReturnScale(jnp.zeros(lanes), no_moments(jnp.zeros(())))


def return_summary(
    reward: Array, terminated: Array, truncated: Array, valid: Array, discount: float | Array
) -> ReturnSummary:
    """The effect of rows [T, b] on each lane's running return G; `absorb_returns` applies it.

    Over valid rows G[t] = discount * G[t - 1] + reward[t], from 0 after an episode's end. That is
    affine in the G before the round, which only the learner knows.
    """
    done = terminated | truncated

    def step(before: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        reward, valid, done = row
        # [2, b]: a has no reward, c has
        gains = jnp.stack([jnp.zeros_like(reward), reward])
        after = jnp.where(valid[None], discount * before + gains, before)
        return jnp.where(done[None], 0.0, after), after

    start = jnp.stack([jnp.ones_like(reward[0]), jnp.zeros_like(reward[0])])
    (decay, gain), both = lax.scan(step, start, (reward, valid, done))
    a, c = both[:, 0], both[:, 1]
    (count, (mean_a, mean_c), (aa, cc)) = moments_of((a, c), valid)
    ac = jnp.where(valid, (a - mean_a[None]) * (c - mean_c[None]), 0.0).sum(axis=0)
    return ReturnSummary(count, decay, gain, mean_a, mean_c, aa, ac, cc)


def absorb_returns(scaler: ReturnScale, summary: ReturnSummary) -> ReturnScale:
    """All B lanes' returns after a round, and moments that include the round's; exact."""
    g, s = scaler.running, summary
    mean = s.mean_a * g + s.mean_c
    m2 = jnp.maximum(s.aa * g * g + 2.0 * s.ac * g + s.cc, 0.0)
    moments = merge(scaler.moments, Moments(s.count, mean, m2))
    return ReturnScale(s.decay * g + s.gain, moments)


def scale(scaler: ReturnScale) -> Array:
    """The deviation of discounted returns, (), which rewards are divided by; 1 before any."""
    count, _, m2 = scaler.moments
    return jnp.sqrt(jnp.where(count > 0.0, m2 / jnp.maximum(count, 1.0), 1.0) + EPSILON)


def _join(one: Moments, two: Moments) -> Moments:
    """The moments of both sets of samples together."""
    count = one.count + two.count
    share = two.count / jnp.maximum(count, 1.0)
    delta = jax.tree.map(jnp.subtract, two.mean, one.mean)
    mean = jax.tree.map(lambda m, d: m + d * share, one.mean, delta)
    m2 = jax.tree.map(lambda p, q, d: p + q + d * d * (one.count * share), one.m2, two.m2, delta)
    return Moments(count, mean, m2)


def _is_float(leaf: Array) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def _expand(x: Array, like: Array) -> Array:
    """`x` with axes of length 1 at its end, up to the rank of `like`."""
    return x.reshape(x.shape + (1,) * (like.ndim - x.ndim))
