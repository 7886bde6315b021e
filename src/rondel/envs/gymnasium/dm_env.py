"""Adapter for dm_env environments: dm_control, bsuite, and all with the same four methods.

dm_env itself is not imported: what counts is `reset`, `step`, `observation_spec`, `action_spec`.

dm_env has no seeds. `reset(seed=...)` makes the environment anew if it came from a function that
takes a `seed`; otherwise it seeds the generators of NumPy and `random` that the environment, its
task (as in dm_control) or what it wraps have as attributes. If there are none, it can't be seeded:
its runs can't be repeated, and the check does not require it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym_spaces

from rondel.errors import RondelError

LAST = 2  # dm_env.StepType
_METHODS = ("reset", "step", "observation_spec", "action_spec")
_INSIDE = ("_task", "_environment", "_env")  # of dm_control; of the usual wrappers


def is_dm(env: Any) -> bool:
    """Whether it has the methods of a dm_env.Environment."""
    return not isinstance(env, type) and all(callable(getattr(env, m, None)) for m in _METHODS)


class DmEnv(gymnasium.Env[Any, Any]):
    """A gymnasium.Env around a dm_env.Environment; `remake(seed=...)` makes another one.

    The last step of an episode terminates if its discount is 0, and truncates otherwise.
    """

    def __init__(self, env: Any, remake: Callable[..., Any] | None = None) -> None:
        self.adapted, self._remake = env, remake
        name = type(env).__name__
        self._seen, done = env.observation_spec(), env.action_spec()
        self.observation_space = observation_space(self._seen, name)
        self.action_space = action_space(done, name)
        self._action_type = np.dtype(done.dtype).type

    @property
    def is_seeded(self) -> bool:
        """Whether a seed has any effect."""
        return self._remake is not None or next(_generators(self.adapted), None) is not None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        del options
        if seed is not None and self._remake is not None:
            self.close()
            self.adapted = self._remake(seed=seed)
        elif seed is not None:
            for place, generator in enumerate(_generators(self.adapted)):
                _seed(generator, seed + place)
        return _plain(self._seen, self.adapted.reset().observation), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if isinstance(self.action_space, gym_spaces.Discrete):
            action = self._action_type(action)  # dm_env checks for the exact dtype
        record = self.adapted.step(action)
        over = int(record.step_type) == LAST
        ended = over and not np.any(record.discount)
        return _plain(self._seen, record.observation), record.reward, ended, over and not ended, {}

    def close(self) -> None:
        if callable(close := getattr(self.adapted, "close", None)):
            close()


def observation_space(spec: Any, name: str) -> Any:
    """Convert an observation spec, or a dict or tuple of them, to a Gymnasium space."""
    if isinstance(spec, dict):
        return gym_spaces.Dict({key: observation_space(part, name) for key, part in spec.items()})
    if isinstance(spec, tuple | list):
        return gym_spaces.Tuple([observation_space(part, name) for part in spec])
    if hasattr(spec, "num_values"):
        return gym_spaces.Discrete(int(spec.num_values))
    dtype = np.dtype(getattr(spec, "dtype", object))
    if dtype == np.bool_:
        return gym_spaces.MultiBinary(spec.shape)
    if dtype.kind not in "iuf":
        raise RondelError(
            f"The observations of {name} must be arrays of numbers or flags, or dicts or tuples of "
            f"these, got {spec!r}. Wrap it to leave the rest out."
        )
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    widest = (limits.min, limits.max) if limits else (-np.inf, np.inf)
    given = getattr(spec, "minimum", widest[0]), getattr(spec, "maximum", widest[1])
    low, high = (np.broadcast_to(bound, spec.shape).astype(dtype) for bound in given)
    return gym_spaces.Box(low, high, dtype=dtype.type)


def action_space(spec: Any, name: str) -> Any:
    """Convert an action spec to a Gymnasium space; an integer with bounds is a choice."""
    if not hasattr(spec, "shape"):
        raise RondelError(
            f"The action of {name} must be one DiscreteArray or BoundedArray, got {spec!r}. Wrap "
            "it in an environment whose action_spec() is one array."
        )
    space = observation_space(spec, name)
    is_whole = np.dtype(space.dtype).kind in "iu"
    if isinstance(space, gym_spaces.Box) and space.shape == () and is_whole:
        first, last = int(space.low), int(space.high)
        return gym_spaces.Discrete(last - first + 1, start=first)
    return space


def _plain(spec: Any, obs: Any) -> Any:
    """Turn an observation into plain dicts and tuples."""
    if isinstance(spec, dict):
        return {key: _plain(part, obs[key]) for key, part in spec.items()}
    if isinstance(spec, tuple | list):
        return tuple(_plain(part, one) for part, one in zip(spec, obs, strict=True))
    return obs


def _generators(env: Any) -> Iterator[Any]:
    """The generators of the environment, its task and what it wraps, each once."""
    todo, seen = [env], {id(env)}
    while todo:
        for name, value in getattr(todo.pop(), "__dict__", {}).items():
            if id(value) in seen:
                continue
            if isinstance(value, np.random.RandomState | np.random.Generator | random.Random):
                seen.add(id(value))
                yield value
            elif name in _INSIDE:
                seen.add(id(value))
                todo.append(value)


def _seed(generator: Any, seed: int) -> None:
    if isinstance(generator, np.random.Generator):
        kind: Any = type(generator.bit_generator)
        generator.bit_generator.state = kind(seed).state
    else:
        generator.seed(seed)
