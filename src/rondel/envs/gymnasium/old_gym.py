"""Adapter for environments of old Gym: `reset()` returns an observation, `step()` four values.

That was Gym up to 0.21, which is not imported: only the methods count. Later ones, whose `step`
returns five values and whose `reset` takes a seed, pass through unchanged.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym_spaces

from rondel.errors import RondelError

_LOOK = ("reset", "step", "observation_space", "action_space")


def is_old(env: Any) -> bool:
    """Whether it has the methods and spaces of a Gym environment."""
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise RondelError(
            "An environment must be a single one, got a vector environment. Pass its id, or a "
            f"function that makes one environment, and lanes={env.num_envs}."
        )
    return not isinstance(env, type) and all(hasattr(env, name) for name in _LOOK)


class OldEnv(gymnasium.Env[Any, Any]):
    """A gymnasium.Env around an environment with Gym's old methods.

    "TimeLimit.truncated" in the info is a truncation; any other end is a termination. `seed(...)`
    is called if it exists, else `reset(seed=...)`.
    """

    def __init__(self, env: Any) -> None:
        self.adapted = env
        name = type(env).__name__
        self.observation_space = space_of(env.observation_space, name)
        self.action_space = space_of(env.action_space, name)
        modes = getattr(env, "metadata", None) or {}
        offered = modes.get("render.modes") or modes.get("render_modes") or ()
        self.render_mode = "rgb_array" if "rgb_array" in offered else None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        del options
        if seed is None:
            result = self.adapted.reset()
        elif callable(give := getattr(self.adapted, "seed", None)):
            give(seed)
            result = self.adapted.reset()
        else:
            result = self.adapted.reset(seed=seed)
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
            return result
        return result, {}

    def step(self, action: Any) -> Any:
        result = self.adapted.step(action)
        if not (isinstance(result, tuple) and len(result) == 4 and isinstance(result[3], dict)):
            return result  # five values are new; the check refuses any other number
        obs, reward, done, info = result
        cut = bool(done) and bool(info.get("TimeLimit.truncated", False))
        return obs, reward, bool(done) and not cut, cut, info

    def render(self) -> Any:
        return self.adapted.render(mode="rgb_array")

    def close(self) -> None:
        if callable(close := getattr(self.adapted, "close", None)):
            close()


def space_of(space: Any, name: str) -> Any:
    """Convert a space of old Gym, found by the name of its class."""
    if isinstance(space, gym_spaces.Space):
        return space
    kinds = {kind.__name__ for kind in type(space).__mro__}
    if "Box" in kinds:
        low, high = (np.broadcast_to(bound, space.shape) for bound in (space.low, space.high))
        return gym_spaces.Box(low, high, dtype=np.dtype(space.dtype).type)
    if "Discrete" in kinds:
        return gym_spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if "MultiDiscrete" in kinds:
        return gym_spaces.MultiDiscrete(space.nvec)
    if "MultiBinary" in kinds:
        return gym_spaces.MultiBinary(space.n)
    if "Dict" in kinds:
        return gym_spaces.Dict({key: space_of(part, name) for key, part in space.spaces.items()})
    if "Tuple" in kinds:
        return gym_spaces.Tuple([space_of(part, name) for part in space.spaces])
    raise RondelError(
        f"The spaces of {name} must be Box, Discrete, MultiDiscrete, MultiBinary, or Dict or Tuple "
        f"of these, got a {type(space).__name__} ({space})."
    )
