"""Where Gymnasium environments come from: a registered id, an instance, or a factory."""

from __future__ import annotations

import contextlib
import copy
import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium

from rondel.envs.errors import EnvError
from rondel.envs.gym import examine, vector
from rondel.envs.gym.lanes import Lanes
from rondel.envs.gym.spaces import action_spec, observation_spec, with_mask
from rondel.errors import RondelError
from rondel.spaces import MASK
from rondel.types import EnvSpec, HostEnv, HostWorld


def world(source: Any) -> HostWorld:
    """The world of one Gymnasium environment.

    `source` is a registered id ("CartPole-v1", or "my_module:Mine-v0" where importing the module registers it),
    a gymnasium.Env, or a function without arguments that makes one. One is made and reset here, to see what it
    observes: an info with "action_mask" makes the observation {"observation": ..., "action_mask": int8 flags}.

    >>> lanes = world("CartPole-v1").make(8)
    >>> step = lanes.reset(range(8))
    """
    build: Callable[[], Any]
    if isinstance(source, str):
        build, name = partial(by_id, source), f"gymnasium:{source}"
    elif isinstance(source, gymnasium.Env):
        build, name = _Copies(source), f"gymnasium:{_name(source)}"
    else:
        build, name = source, ""
    env = source if isinstance(source, gymnasium.Env) else build()
    if not isinstance(env, gymnasium.Env):
        raise RondelError(f"The factory made a {type(env).__name__}, not a gymnasium.Env.")
    name = name or f"gymnasium:{_name(env)}"
    observation = observation_spec(env.observation_space, name)
    action = action_spec(env.action_space, name)
    _, info = examine.reset(env, name, seed=0)
    masked = MASK in info and not (isinstance(observation, dict) and MASK in observation)
    if masked:
        observation = with_mask(observation, action, name)
    if env is not source:
        env.close()
    spec = EnvSpec(name, observation, action)
    if isinstance(source, str) and not masked and vector.usable(source, spec):
        return HostWorld(spec, partial(vector.VectorLanes, source, spec))
    return HostWorld(spec, partial(_lanes, build, spec, masked))


def _lanes(
    build: Callable[[], Any], spec: EnvSpec, masked: bool, b: int, first_lane: int = 0
) -> HostEnv:
    return Lanes([build() for _ in range(b)], spec, masked, first_lane)


def by_id(name: str) -> Any:
    """One environment of a registered id, with what is missing said in a sentence."""
    if name.startswith("ALE/"):
        with contextlib.suppress(ImportError):
            importlib.import_module("ale_py")  # importing it is what registers its games
    try:
        # the checker is a Python call per step; ours has looked before
        return gymnasium.make(name, disable_env_checker=True)
    except gymnasium.error.DependencyNotInstalled as error:
        raise RondelError(f"{name} needs a package that is not here: {error}") from error
    except gymnasium.error.NamespaceNotFound as error:
        hint = ' (pip install "gymnasium[atari]")' if name.startswith("ALE/") else ""
        raise RondelError(f"{name} is not registered with Gymnasium: {error}{hint}") from error
    except (gymnasium.error.Error, ImportError) as error:
        raise RondelError(f"Gymnasium can't make {name}: {error}") from error
    except Exception as error:
        raise EnvError(f"gymnasium:{name} raised {type(error).__name__} when made: {error}") from error


def _name(env: Any) -> str:
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


class _Copies:
    """Makes environments like a given one: first that one itself, then copies of it."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._handed_out = False

    def __call__(self) -> Any:
        if not self._handed_out:
            self._handed_out = True
            return self._env
        if self._env.spec is not None:
            # a wrapper that doesn't record its arguments can't be made again: copy it instead
            with contextlib.suppress(ValueError, gymnasium.error.Error):
                return gymnasium.make(self._env.spec, disable_env_checker=True)
        try:
            return copy.deepcopy(self._env)
        except Exception as error:
            raise RondelError(
                f"{_name(self._env)} was given as one environment, and more are needed, but it can't be "
                f"copied ({error}): pass a function that makes one instead."
            ) from error
