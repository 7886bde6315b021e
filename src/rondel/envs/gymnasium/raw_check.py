"""Checks of a raw Gymnasium environment, before it is adapted; one sentence says what is wrong."""

from __future__ import annotations

import copy
import numbers
from typing import Any

import numpy as np
from gymnasium import spaces as gym_spaces

from rondel.envs.errors import EnvError
from rondel.envs.guard.crash_report import attempt
from rondel.envs.guard.sampling import random_action, violations
from rondel.envs.gymnasium.spaces import action_spec, flat_mask, translator
from rondel.errors import RondelError
from rondel.spaces import MASK, mask_of


def check_raw_env(env: Any, name: str, steps: int = 16) -> None:
    """Run random steps twice with one seed; raise a RondelError if something is wrong."""
    trails = [_run(env, name, steps) for _ in range(2)]
    declared = env.spec is not None and env.spec.nondeterministic
    seeded = getattr(env.unwrapped, "is_seeded", True)  # an adapter may not be able to seed
    if seeded and not declared and not _same(*trails):
        raise RondelError(
            f"{name} must repeat an episode with the same seed and actions, but does not. Draw all "
            "randomness from self.np_random, and call super().reset(seed=seed)."
        )


def reset(env: Any, name: str, **seed: int) -> tuple[Any, dict[str, Any]]:
    """Call `env.reset(seed=seed)` and check its (observation, info)."""
    with attempt(name, "reset()"):
        try:
            result = env.reset(**seed)
        except (Exception, SystemExit) as error:
            if isinstance(error, TypeError) and "seed" in str(error):
                raise RondelError(
                    f"{name} must take a seed. Define reset(self, *, seed=None, options=None), and "
                    "call super().reset(seed=seed) in it."
                ) from error
            raise EnvError(f"{name} raised {type(error).__name__} in reset(): {error}") from error
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
        raise RondelError(
            f"reset() of {name} must return (observation, info) with a dict as info, got "
            f"{_described(result)}."
        )
    _compare(env.observation_space, result[0], f"reset() of {name}")
    return result


def step(env: Any, name: str, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """Call `env.step(action)` and check its five values."""
    with attempt(name, f"step({action!r})"):
        try:
            result = env.step(action)
        except (Exception, SystemExit) as error:
            raise EnvError(
                f"{name} raised {type(error).__name__} in step({action!r}): {error}"
            ) from error
    if not (isinstance(result, tuple) and len(result) == 5 and isinstance(result[4], dict)):
        raise RondelError(
            f"step() of {name} must return (observation, reward, terminated, truncated, info) with "
            f"a dict as info, got {_described(result)}."
        )
    obs, reward, *ends, _ = result
    _compare(env.observation_space, obs, f"step() of {name}")
    if not isinstance(np.asarray(reward)[()], numbers.Real | np.bool_):
        raise RondelError(f"The reward from step() of {name} must be a number, got {reward!r}.")
    if not np.isfinite(float(reward)):
        raise RondelError(f"The reward from step() of {name} must be finite, got {reward}.")
    for what, end in zip(("terminated", "truncated"), ends, strict=True):
        if not isinstance(end, bool | np.bool_):
            raise RondelError(
                f"{what} from step() of {name} must be a bool, got {end!r} of type "
                f"{type(end).__name__}."
            )
    return result


def _run(env: Any, name: str, steps: int) -> list[Any]:
    """Observations and rewards of random steps from one seed, each checked."""
    random = np.random.default_rng(7)
    obs, info = reset(env, name, seed=7)
    trail, over = [copy.deepcopy(obs)], False
    for _ in range(steps):
        if over:
            obs, info = reset(env, name)
            over = False
        else:
            action = _random_action(env.action_space, obs, info, random)
            obs, reward, terminated, truncated, info = step(env, name, action)
            trail.append(reward)
            over = terminated or truncated
        trail.append(copy.deepcopy(obs))
    return trail


def _random_action(space: Any, obs: Any, info: Any, random: np.random.Generator) -> Any:
    """A random action in the environment's units, allowed by its mask if it has one."""
    mask = info.get(MASK, mask_of(obs))
    row = None if mask is None else flat_mask(mask)[None]
    action = random_action(action_spec(space, ""), 1, random, row)
    (chosen,) = translator(space)(action)
    return int(chosen) if isinstance(space, gym_spaces.Discrete) else chosen


def _compare(space: Any, obs: Any, call: str) -> None:
    """Raise a RondelError unless the observation is in its space.

    The adapted environment is checked too, but it has cast numbers and cut shapes to fit.
    """
    if isinstance(space, gym_spaces.Dict | gym_spaces.Tuple):
        spaces: Any = space.spaces
        for key in spaces if isinstance(spaces, dict) else range(len(spaces)):
            try:
                part = obs[key]
            except (KeyError, IndexError, TypeError) as error:
                raise RondelError(
                    f"The observation from {call} must have the part {key!r} of its space, got "
                    f"{obs!r}."
                ) from error
            _compare(spaces[key], part, f"{call}, at {key!r},")
        return
    try:
        array = np.asarray(obs)
    except ValueError:
        array = np.asarray(obs, object)
    if array.shape != space.shape:
        raise RondelError(
            f"The observation from {call} must have shape {space.shape}, got {array.shape}."
        )
    # 64 bits for 32 and integers for floats are fine; floats for integers are not
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and space.dtype.kind != "f"):
        raise RondelError(
            f"The observation from {call} must have dtype {space.dtype}, got {array.dtype}."
        )
    if not np.isfinite(array).all():
        raise RondelError(f"The observation from {call} must be finite, got {array}.")
    bounded = isinstance(space, gym_spaces.Box)
    if bounded and (stray := violations(array, space.low, space.high)):
        raise RondelError(f"The observation from {call} is outside its space: {stray}.")


def _described(result: Any) -> str:
    if isinstance(result, tuple):
        return f"a tuple of {len(result)} ({', '.join(type(part).__name__ for part in result)})"
    return f"one {type(result).__name__}"


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return all(_same(a[name], b[name]) for name in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b))
