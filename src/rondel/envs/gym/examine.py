"""Looks at one raw Gymnasium environment and says in a sentence what is wrong with it."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces as gym_spaces

from rondel.envs.errors import EnvError
from rondel.errors import RondelError
from rondel.spaces import MASK


def examine(env: Any, name: str, steps: int = 16) -> None:
    """Reset and step the environment with random actions; a RondelError says what is wrong."""
    random = np.random.default_rng(0)
    trail = _run(env, name, steps, np.random.default_rng(0))
    again = _run(env, name, steps, random)
    nondeterministic = env.spec is not None and env.spec.nondeterministic
    if not nondeterministic and not _same(trail, again):
        raise RondelError(
            f"{name} goes differently when it is reset twice with the same seed and does the same: draw all its "
            "randomness from self.np_random, after super().reset(seed=seed)."
        )


def reset(env: Any, name: str, seed: int) -> tuple[Any, dict[str, Any]]:
    """What `env.reset(seed=seed)` returns, (obs, info), looked at."""
    try:
        result = env.reset(seed=seed)
    except TypeError as error:
        if "seed" not in str(error):
            raise _raised(error, name, "reset()") from error
        raise RondelError(
            f"{name} does not take a seed: define reset(self, *, seed=None, options=None) and call "
            "super().reset(seed=seed) in it."
        ) from error
    except Exception as error:
        raise _raised(error, name, "reset()") from error
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
        raise RondelError(
            f"{name} returns {_described(result)} from reset(), where Gymnasium wants (observation, info) "
            "with info a dict."
        )
    _conform(env.observation_space, result[0], f"{name}, in reset(),")
    return result


def _run(env: Any, name: str, steps: int, random: np.random.Generator) -> list[Any]:
    """All observations and rewards of some random steps, each looked at."""
    obs, info = reset(env, name, seed=7)
    trail = [obs]
    env.action_space.seed(7)
    over = False
    for _ in range(steps):
        if over:
            obs, info = env.reset()
            over = False
        else:
            obs, reward, terminated, truncated, info = step(env, name, _sample(env, info, random))
            trail.append(reward)
            over = terminated or truncated
        trail.append(obs)
    return trail
