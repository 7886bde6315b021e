"""An environment that fails at a known place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest

from execution.backends import tiny
from execution.test_equality import BLOCK, LANES, SEED
from rondel.envs.errors import EnvError
from rondel.envs.registry import make
from rondel.execution.hostenv.seeds import Purpose, lane_seeds
from rondel.execution.stages.task import Task


class Failing(gymnasium.Env[Any, Any]):
    """CartPole whose seed decides after how many steps it raises: here only lane 9's does."""

    def __init__(self) -> None:
        self._env = gymnasium.make("CartPole-v1")
        self.observation_space, self.action_space = (
            self._env.observation_space,
            self._env.action_space,
        )
        self._fails = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self._fails = seed == FAILING_SEED
            self._left = 20
        return self._env.reset(seed=seed)

    def step(self, action: Any) -> Any:
        self._left -= 1
        if self._fails and self._left < 0:
            self.burn()
        return self._env.step(action)

    def burn(self) -> None:
        raise ValueError("the pole is on fire")


def _seed_of_lane(lane: int) -> int:
    return int(lane_seeds(SEED, Purpose.ENV, 1, 0, first_lane=lane)[0])


FAILING_SEED = _seed_of_lane(9)


@pytest.fixture
def failing() -> SimpleNamespace:
    world = make(Failing)
    task = Task(tiny.make(None, world.spec), world, SEED, LANES, BLOCK)
    return SimpleNamespace(world=world, task=task, kind=EnvError)
