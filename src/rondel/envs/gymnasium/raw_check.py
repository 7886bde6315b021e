"""Looks at one raw Gymnasium environment and says in one sentence what is wrong with it."""

from __future__ import annotations

import copy
import numbers
from typing import Any

import numpy as np
from gymnasium import spaces as gym_spaces

from rondel.envs.errors import EnvError
from rondel.envs.guard.crash_report import attempt
from rondel.envs.guard.sampling import mask_of, random_action, violations
from rondel.envs.gymnasium.spaces import action_spec, flat_mask, translator
from rondel.errors import RondelError
from rondel.spaces import MASK


def check_raw_env(env: Any, name: str, steps: int = 16) -> None:
    """Run some random steps, twice with the same seed; a RondelError says what is wrong."""
    trails = [_run(env, name, steps) for _ in range(2)]
    declared = env.spec is not None and env.spec.nondeterministic
    seeded = getattr(env.unwrapped, "is_seeded", True)  # adapters say where they know no way to
    if seeded and not declared and not _same(*trails):
        raise RondelError(
            f"{name} goes differently after two resets with one seed and the same actions: all its "
            "randomness must come from self.np_random, which super().reset(seed=seed) seeds."
        )


def reset(env: Any, name: str, **seed: int) -> tuple[Any, dict[str, Any]]:
    """What `env.reset(seed=seed)` returns, (observation, info), looked at."""
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
            f"reset() of {name} returned {_described(result)}; it must return (observation, info), "
            "info being a dict."
        )
    _compare(env.observation_space, result[0], f"reset() of {name}")
    return result


def step(env: Any, name: str, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """What `env.step(action)` returns, looked at."""
    with attempt(name, f"step({action!r})"):
        try:
            result = env.step(action)
        except (Exception, SystemExit) as error:
            raise EnvError(
                f"{name} raised {type(error).__name__} in step({action!r}): {error}"
            ) from error
    if not (isinstance(result, tuple) and len(result) == 5 and isinstance(result[4], dict)):
        raise RondelError(
            f"step() of {name} returned {_described(result)}; it must return "
            "(observation, reward, terminated, truncated, info), info being a dict."
        )
    obs, reward, *ends, _ = result
    _compare(env.observation_space, obs, f"step() of {name}")
    if not isinstance(np.asarray(reward)[()], numbers.Real | np.bool_):
        raise RondelError(f"step() of {name} returned the reward {reward!r}; it must be a number.")
    if not np.isfinite(float(reward)):
        raise RondelError(f"step() of {name} returned the reward {reward}; it must be finite.")
    for what, end in zip(("terminated", "truncated"), ends, strict=True):
        if not isinstance(end, bool | np.bool_):
            raise RondelError(
                f"step() of {name} returned {what}={end!r} of type {type(end).__name__}; "
                "it must be a bool."
            )
    return result


def _run(env: Any, name: str, steps: int) -> list[Any]:
    """Observations and rewards of random steps from one seed, each looked at."""
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
    """An action in the environment's units, among those that its mask allows if it has one."""
    mask = info.get(MASK, mask_of(obs))
    row = None if mask is None else flat_mask(mask)[None]
    action = random_action(action_spec(space, ""), 1, random, row)
    (said,) = translator(space)(action)
    return int(said) if isinstance(space, gym_spaces.Discrete) else said


def _compare(space: Any, obs: Any, call: str) -> None:
    """Raise a sentence where the observation isn't one of its space."""
    match space:
        case gym_spaces.Dict():
            if not (isinstance(obs, dict) and obs.keys() == space.keys()):
                found = f"the keys {sorted(obs)}" if isinstance(obs, dict) else _described(obs)
                raise RondelError(
                    f"{call} returned an observation with {found}; its space has {sorted(space)}."
                )
            for name, part in space.items():
                _compare(part, obs[name], f"{call}, at {name!r},")
        case gym_spaces.Tuple():
            if not (isinstance(obs, tuple) and len(obs) == len(space)):
                raise RondelError(
                    f"{call} returned {_described(obs)}; its space is a tuple of {len(space)}."
                )
            for place, part in enumerate(space):
                _compare(part, obs[place], f"{call}, at {place},")
        case gym_spaces.Box():
            _compare_box(space, obs, call)
        case _ if not space.contains(obs):
            raise RondelError(f"{call} returned the observation {obs!r}, which is not in {space}.")


def _compare_box(space: Any, obs: Any, call: str) -> None:
    try:
        array = np.asarray(obs)
    except ValueError:
        array = np.asarray(obs, object)
    if array.shape != space.shape:
        raise RondelError(
            f"{call} returned an observation of shape {array.shape}; its space says {space.shape}."
        )
    # 64 bits for 32 and whole numbers for real ones are fine; fractions for whole numbers are not
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and space.dtype.kind != "f"):
        raise RondelError(
            f"{call} returned an observation of dtype {array.dtype}; its space says {space.dtype}."
        )
    if not np.isfinite(array).all():
        raise RondelError(f"{call} returned an observation that is not finite: {array}.")
    if stray := violations(array, space.low, space.high):
        raise RondelError(f"{call} returned an observation outside its space: {stray}.")


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
