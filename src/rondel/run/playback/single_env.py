"""One lane of an environment, stepped and drawn one call at a time."""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from rondel.envs.errors import EnvError
from rondel.execution.hostenv.seeds import Purpose, lane_seeds
from rondel.ops.random import per_lane, purpose_key
from rondel.types import Env, HostWorld, Step, Tree


class SingleEnv(Protocol):
    """One lane, whose n-th episode begins as that of lane n does in an evaluation."""

    def begin(self, episode: int) -> Step:
        """Leave the current episode and begin this one."""

    def step(self, action: np.ndarray) -> Step:
        """Take one step; after the end of an episode this only begins the next one."""

    def picture(self) -> Any:
        """An image [height, width, 3] of the current state; None if it has none."""

    def close(self) -> None:
        """Release its resources."""


def single_env(world: Env | HostWorld, seed: int, shown: bool = False) -> SingleEnv:
    """One lane of an environment; `shown` for one that can be drawn, if there is any."""
    return _Traced(world, seed) if isinstance(world, Env) else _Hosted(world, seed, shown)


class _Traced:
    def __init__(self, env: Env, seed: int) -> None:
        self._env, self._key = env, purpose_key(seed, Purpose.EVALUATE)
        self._init, self._step = jax.jit(env.init) if env.pure else env.init, jax.jit(env.step)
        self._state: Tree = None

    def begin(self, episode: int) -> Step:
        self.close()
        number = jnp.array([episode], jnp.int32)
        self._state, step = self._init(per_lane(self._key, number))
        return step

    def step(self, action: np.ndarray) -> Step:
        self._state, step = self._step(self._state, action)
        return step

    def picture(self) -> Any:
        if self._env.draw is None:
            return None
        try:
            return self._env.draw(jax.tree.map(_first, self._state))
        except Exception as error:
            raise EnvError(
                f"draw() of {self._env.spec.id} raised {type(error).__name__}: {error}"
            ) from error

    def close(self) -> None:
        if self._env.close is not None and self._state is not None:
            self._env.close(self._state)
        self._state = None


def _first(x: Any) -> Any:
    """The value of the one lane; random keys can't be NumPy arrays."""
    return x[0] if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x[0])


class _Hosted:
    def __init__(self, world: HostWorld, seed: int, shown: bool) -> None:
        show = world.show if shown else None
        self._shown, self._seed = show is not None, seed
        self._env: Any = world.make(1, 0) if show is None else show()

    def begin(self, episode: int) -> Step:
        seeds = lane_seeds(self._seed, Purpose.EVALUATE, 1, first_lane=episode)
        return self._env.reset(seeds)

    def step(self, action: np.ndarray) -> Step:
        return self._env.step(action)

    def picture(self) -> Any:
        return self._env.picture() if self._shown else None

    def close(self) -> None:
        self._env.close()
