"""An environment that only sleeps, so that two cores can stand for many."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np

SECONDS = 0.002
LENGTH = 200


class Sleepy(gymnasium.Env[Any, Any]):
    """Every step sleeps for two milliseconds; episodes have 200 steps."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, config: Any = None) -> None:
        del config  # RLlib passes one

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._left = LENGTH
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        time.sleep(SECONDS)
        self._left -= 1
        return np.zeros(4, np.float32), float(action), False, self._left == 0, {}
