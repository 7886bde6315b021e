"""A trained policy, for acting outside of training."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rondel.errors import RondelError
from rondel.execution.hostenv.seeds import Purpose
from rondel.execution.stages.rng import per_lane, purpose_key
from rondel.execution.stages.task import to_device
from rondel.spaces import Space, zeros
from rondel.types import Algorithm, EnvSpec, Tree


class Policy:
    """A function from observations to actions, as a run has learned it."""

    def __init__(
        self, algorithm: Algorithm, spec: EnvSpec, weights: Tree, asked: Iterator[int] | None = None
    ) -> None:
        self.algorithm, self.spec, self.weights = algorithm, spec, weights
        self._asked = asked or itertools.count()  # shared by a run's policies
        self._act = jax.jit(algorithm.act, static_argnums=4)

    def act(self, obs: Tree, carry: Tree = None, *, explore: bool = False, seed: int = 0) -> Any:
        """The action for one observation, or the actions for a batch of them, in env units.

        Greedy unless `explore`. A recurrent policy returns (action, carry): hand the carry back
        with the next observation, and leave it out at the start of an episode.
        """
        single, batch = _batched(self.spec.observation, obs)
        lane = jnp.arange(jax.tree.leaves(batch)[0].shape[0])
        before = self.algorithm.carry(lane) if carry is None else carry
        nth = next(self._asked) if explore else 0
        keys = per_lane(purpose_key(seed, Purpose.EVALUATE, 2, nth), lane)
        out, after, _ = self._act(self.weights, before, batch, keys, explore)
        action = self.spec.action.to_env(np.asarray(out))
        action = action[0] if single else action
        return (action, after) if self._remembers else action

    @cached_property
    def _remembers(self) -> bool:
        """Does acting change the carry? A lane's constant, such as its epsilon, does not count."""
        lane = jnp.arange(1)
        obs = to_device(zeros(self.spec.observation, 1))
        keys = per_lane(purpose_key(0, Purpose.EVALUATE), lane)

        def after(carry: Tree) -> Tree:
            return self.algorithm.act(self.weights, carry, obs, keys, False)[1]

        traced = jax.make_jaxpr(after)(self.algorithm.carry(lane)).jaxpr
        return list(traced.invars) != list(traced.outvars)


def _batched(space: Space, obs: Tree) -> tuple[bool, Tree]:
    """Whether `obs` lacks the batch axis, and `obs` with that axis."""
    like = zeros(space)
    try:
        obs = jax.tree.map(lambda z, x: np.asarray(x, z.dtype), like, obs)
        extra = {x.ndim - z.ndim for x, z in zip(*map(jax.tree.leaves, (obs, like)), strict=True)}
        fits = jax.tree.map(lambda x, z: x.shape[x.ndim - z.ndim :] == z.shape, obs, like)
    except (ValueError, TypeError):
        extra, fits = set(), False
    if extra not in ({0}, {1}) or not all(jax.tree.leaves(fits)):
        shape = jax.tree.map(lambda z: z.shape, like)
        raise RondelError(
            f"The observation must have shape {shape}, or one more axis in front for a batch, got "
            f"{jax.tree.map(np.shape, obs)}."
        )
    single = extra == {0}
    return single, to_device(jax.tree.map(lambda x: x[None], obs) if single else obs)
