"""A trained policy, for acting outside of training."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rondel.errors import RondelError
from rondel.execution.hostenv.seeds import Purpose
from rondel.ops.random import per_lane, purpose_key
from rondel.spaces import zeros
from rondel.types import Algorithm, Array, EnvSpec, Tree


class Policy:
    """A function from observations to actions, as a run has learned it."""

    def __init__(
        self, algorithm: Algorithm, spec: EnvSpec, weights: Tree, asked: Iterator[int] | None = None
    ) -> None:
        self.algorithm, self.spec, self.weights = algorithm, spec, weights
        self._asked = asked or itertools.count()  # shared by a run's policies
        self._like = zeros(spec.observation)
        self._choose = _compiled(algorithm)

    def act(self, obs: Tree, carry: Tree = None, *, explore: bool = False, seed: int = 0) -> Any:
        """The action for one observation, or the actions for a batch of them, in env units.

        Greedy unless `explore`. A recurrent policy returns (action, carry): hand the carry back
        with the next observation, and leave it out at the start of an episode.
        """
        single, batch = _batched(self._like, obs)
        draw = np.array([seed, next(self._asked) if explore else 0], np.uint32)
        out, after = self._choose(self.weights, carry, batch, draw, explore)
        action = self.spec.action.to_env(np.asarray(out))
        action = action[0] if single else action
        return action if after is None else (action, after)


@lru_cache(maxsize=32)
def _compiled(algorithm: Algorithm) -> Any:
    """`_choose`, compiled once for all policies of a run."""
    return jax.jit(partial(_choose, algorithm), static_argnums=4)


def _choose(
    algorithm: Algorithm, weights: Tree, carry: Tree, obs: Tree, draw: Array, explore: bool
) -> tuple[Array, Tree]:
    """The actions, and the carry if acting changed it: a lane's constant, such as its epsilon,
    does not count. Keys are made in here, so a greedy policy spends nothing on them."""
    lane = jnp.arange(jax.tree.leaves(obs)[0].shape[0])
    keys = per_lane(purpose_key(draw[0], Purpose.EVALUATE, 2, draw[1]), lane)
    before = algorithm.carry(lane) if carry is None else carry
    action, after, _ = algorithm.act(weights, before, obs, keys, explore)
    leaves = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return action, after if any(old is not new for old, new in leaves) else None


def _batched(like: Tree, obs: Tree) -> tuple[bool, Tree]:
    """Whether `obs` lacks the batch axis, and a copy of `obs` with that axis."""
    try:
        obs = jax.tree.map(lambda z, x: np.array(x, z.dtype), like, obs)
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
    return single, jax.tree.map(lambda x: x[None], obs) if single else obs
