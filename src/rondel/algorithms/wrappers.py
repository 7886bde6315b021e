"""Features for any algorithm: each wraps an `Algorithm` in another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rondel.errors import RondelError
from rondel.ops import statistics
from rondel.ops.statistics import Moments, ReturnScale
from rondel.spaces import unseen, zeros
from rondel.types import Algorithm, Array, EnvSpec, Trajectory, Tree

_OBSERVATIONS = ("obs", "next_obs")


class Normalised(NamedTuple):
    """The learner's state, with statistics of observations."""

    inner: Tree
    moments: Moments  # of all observations so far: the next round acts with these
    acted: Moments  # with which the newest data were acted: learning sees equal numbers


class Scaled(NamedTuple):
    """The learner's state, with statistics of discounted returns."""

    inner: Tree
    returns: ReturnScale


def with_observation_normalisation(
    algorithm: Algorithm, spec: EnvSpec, clip: float = 10.0
) -> Algorithm:
    """Observations reach the networks with zero mean and unit deviation; memory keeps them raw.

    Statistics travel with the data that were acted with them, however old: a newer mean would look
    like another policy. In a free run the lanes of a round may have acted with different
    statistics; then those of the first lane count.
    """

    def init(key: Array) -> Normalised:
        nothing = statistics.no_moments(zeros(spec.observation))
        return Normalised(algorithm.init(key), nothing, nothing)

    def see(moments: Moments, obs: Tree) -> Tree:
        seen = statistics.normalise(moments, obs, clip)
        return seen | unseen(obs) if isinstance(obs, dict) else seen

    def absorb(state: Normalised, summary: tuple[Tree, Moments, Moments]) -> Normalised:
        inner, observed, acted = summary
        return Normalised(
            algorithm.absorb(state.inner, inner),
            statistics.merge(state.moments, observed),
            acted=jax.tree.map(lambda x: x[0], acted),
        )

    def act(weights: Tree, carry: Tree, obs: Tree, *rest: Tree) -> Tree:
        inner, moments = weights
        return algorithm.act(inner, carry, see(moments, obs), *rest)

    def prepare(weights: Tree, tr: Trajectory) -> tuple[Tree, tuple[Tree, Moments, Moments]]:
        inner, moments = weights
        seen, summary = algorithm.prepare(inner, tr._replace(obs=see(moments, tr.obs)))
        # Prepared twice: observations come from the raw items, all else from the normalised ones.
        # XLA drops what is unused.
        raw, _ = algorithm.prepare(inner, tr)
        items = seen._replace(**{name: getattr(raw, name) for name in _observations_of(seen)})
        new = jax.tree.map(lambda x: x[algorithm.overlap : -1], tr.obs)
        observed = statistics.moments_of(new, tr.valid[algorithm.overlap :])
        lanes = tr.valid.shape[1]  # a summary is lane by lane
        acted = jax.tree.map(lambda x: jnp.broadcast_to(x, (lanes, *x.shape)), moments)
        return items, (summary, observed, acted)

    def seen_batch(moments: Moments, batch: Tree) -> Tree:
        names = _observations_of(batch)
        return batch._replace(**{name: see(moments, getattr(batch, name)) for name in names})

    def gradient(variables: Tree, batch: Tree, key: Array) -> Tree:
        inner, moments = variables
        return algorithm.gradient(inner, seen_batch(moments, batch), key)

    def label(variables: Tree, batch: Tree, keys: Array) -> Tree:
        inner, moments = variables
        assert algorithm.label is not None
        made = algorithm.label(inner, seen_batch(moments, batch), keys)
        # raw again: `gradient` normalises them
        return made._replace(**{name: getattr(batch, name) for name in _observations_of(made)})

    return algorithm._replace(
        init=init,
        acting=lambda state: (algorithm.acting(state.inner), state.moments),
        learning=lambda state: (algorithm.learning(state.inner), state.acted),
        absorb=absorb,
        gradient=gradient,
        label=algorithm.label and label,
        update=lambda state, grads: state._replace(inner=algorithm.update(state.inner, grads)),
        act=act,
        prepare=prepare,
        start=_start_of(algorithm),
    )


def with_reward_scaling(
    algorithm: Algorithm, lanes: int, discount: float, clip: float = 10.0
) -> Algorithm:
    """Divide rewards by the running deviation of the discounted return, then clip at ±clip."""

    def init(key: Array) -> Scaled:
        return Scaled(algorithm.init(key), statistics.no_returns(lanes))

    def absorb(state: Scaled, summary: Tree) -> Scaled:
        inner, summed = summary
        returns = statistics.absorb_returns(state.returns, summed)
        if algorithm.fresh:  # no episode goes on from here
            returns = returns._replace(running=jnp.zeros_like(returns.running))
        return Scaled(algorithm.absorb(state.inner, inner), returns)

    def prepare(weights: Tree, tr: Trajectory) -> tuple[Tree, Tree]:
        inner, scale = weights
        scaled = tr._replace(reward=jnp.clip(tr.reward / scale, -clip, clip))
        items, summary = algorithm.prepare(inner, scaled)
        rows = tr.reward, tr.terminated, tr.truncated, tr.valid
        reward, terminated, truncated, valid = (x[algorithm.overlap :] for x in rows)
        returns = statistics.return_summary(reward, terminated, truncated, valid, discount)
        return items, (summary, returns)

    return algorithm._replace(
        init=init,
        acting=lambda state: (algorithm.acting(state.inner), statistics.scale(state.returns)),
        learning=lambda state: algorithm.learning(state.inner),
        absorb=absorb,
        update=lambda state, grads: state._replace(inner=algorithm.update(state.inner, grads)),
        act=lambda weights, *rest: algorithm.act(weights[0], *rest),
        prepare=prepare,
        start=_start_of(algorithm),
    )


def _start_of(algorithm: Algorithm) -> Callable[[Tree, Array, Array], Tree] | None:
    """The algorithm's `start`, given weights in a pair with statistics."""
    start = algorithm.start
    return None if start is None else lambda weights, *rest: start(weights[0], *rest)


def _observations_of(record: Tree) -> list[str]:
    for part in record:
        if set(_OBSERVATIONS) & set(getattr(part, "_fields", ())):
            raise RondelError(
                "normalise_observations needs observations in fields obs and next_obs of items and "
                f"batches, got them in a {type(part).__name__}. Leave it out."
            )
    return [name for name in _OBSERVATIONS if name in record._fields]
