"""Gradient steps whose size may fall to 0 over a run, and the learner's state for them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax

from rondel.nets.actor_critic import ActorCritic
from rondel.types import Array, Tree


class Settings(Protocol):
    """The fields of a `Config` for gradient steps."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def anneal_steps(self) -> int | None: ...


class State(NamedTuple):
    """The learner's state; some algorithms add to it."""

    params: Tree
    opt_state: Tree
    steps: Array  # environment steps so far, no further than the annealing needs


def init(model: ActorCritic, optimiser: optax.GradientTransformation, key: Array) -> State:
    """The state before the first step."""
    params = model.init(key)
    return State(params, optimiser.init(params), jnp.int32(0))


def count_steps(horizon: int | None, state: Tree, steps: Array) -> Tree:
    """The state after a round of these environment steps [B], which count up to `horizon`."""
    return state._replace(steps=jnp.minimum(state.steps + steps.sum(), horizon or 0))


def descend(
    config: Settings, optimiser: optax.GradientTransformation, state: Tree, grads: Tree
) -> Tree:
    """The state after a gradient step; an annealed step size falls to 0 linearly."""
    horizon = config.anneal_steps
    left = (horizon - state.steps) / horizon if horizon else 1.0
    direction, opt_state = optimiser.update(grads, state.opt_state)
    params = jax.tree.map(lambda p, d: p - config.learning_rate * left * d, state.params, direction)
    return state._replace(params=params, opt_state=opt_state)
