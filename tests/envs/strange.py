"""Small Gymnasium environments of a user: one with every space, and one to be broken."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Nested(gymnasium.Env[Any, Any]):
    """Observes a nest of every space; three steps an episode; the reward is the action's sum."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 2), np.uint8),
            "pair": spaces.Tuple(
                [spaces.Discrete(3, start=2), spaces.MultiDiscrete([2, 3], start=[1, 10])]
            ),
            "wide": spaces.Box(-np.inf, np.inf, (2,), np.float64),
            "whole": spaces.Box(-5, 5, (1,), np.int64),
            "flags": spaces.MultiBinary(3),
        }
    )
    action_space = spaces.MultiDiscrete([2, 3], start=[0, 4])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.t += 1
        return self._obs(), float(action.sum()), self.t == 3, False, {}

    def _obs(self) -> Any:
        random = self.np_random
        return {
            "image": random.integers(0, 256, (2, 2)).astype(np.uint8),
            "pair": (np.int64(random.integers(2, 5)), np.array([1, 10]) + random.integers(0, 2)),
            "wide": random.normal(size=2),
            "whole": random.integers(-5, 5, 1),
            "flags": random.integers(0, 2, 3).astype(np.int8),
        }


class Plain(gymnasium.Env[Any, Any]):
    """A sound environment; a test breaks it by giving some of its methods anew."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.obs(), {}

    def step(self, action: Any) -> Any:
        return self.obs(), 1.0, False, False, {}

    def obs(self) -> Any:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


def broken(**methods: Any) -> type[Plain]:
    """`Plain` with some of its methods or spaces replaced."""
    return type("Broken", (Plain,), methods)
