"""Environments of old Gym as Gymnasium ones: `reset()` gives an observation, `step()` four values.

That was Gym up to 0.21, which is not imported: what counts is how the environment looks. Later
ones, whose `step` gives five values and whose `reset` takes a seed, come through as they are.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces as gym_spaces

from rondel.errors import RondelError

_LOOK = ("reset", "step", "observation_space", "action_space")


def is_old(env: Any) -> bool:
    """Whether it has the methods and the spaces of an environment of Gym."""
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise RondelError(
            "A vector environment can't be a lane: give the id or a function that makes one "
            f"environment, and lanes={env.num_envs}."
        )
    return not isinstance(env, type) and all(hasattr(env, name) for name in _LOOK)


class OldEnv(gymnasium.Env[Any, Any]):
    """An environment with Gym's old methods as a gymnasium.Env.

    What its TimeLimit wrapper notes in the info, "TimeLimit.truncated", is a truncation; any other
    end is a termination. `seed(...)` is called where there is one, else `reset(seed=...)`.
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
            return result  # five values are new; for any other number the check has a sentence
        obs, reward, done, info = result
        cut = bool(done) and bool(info.get("TimeLimit.truncated", False))
        return obs, reward, bool(done) and not cut, cut, info

    def render(self) -> Any:
        return self.adapted.render(mode="rgb_array")

    def close(self) -> None:
        if callable(close := getattr(self.adapted, "close", None)):
            close()


def space_of(space: Any, name: str) -> Any:
    """Gymnasium's space for one of old Gym, which is known by the name of its class."""
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
        f"{name} has a space of the kind {type(space).__name__} ({space}); supported are Box, "
        "Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these."
    )
