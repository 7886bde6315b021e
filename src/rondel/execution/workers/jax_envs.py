"""The env stage alone, over a traceable environment."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rondel.execution.hostenv.partition import Group
from rondel.execution.stages import initial
from rondel.execution.stages.task import Task, map_blocks, with_keys, without_keys
from rondel.execution.telemetry.timing import Metered
from rondel.types import Env, Step, Tree


class JaxEnvs(Metered):
    """The groups of lanes of an env copy; answers the requests of `EnvApi`."""

    def __init__(self, task: Task, groups: Sequence[Group]) -> None:
        self._seed = np.uint32(task.seed)
        self._groups = {group.first_lane: group for group in groups}
        self._states: dict[int, Tree] = {}
        # if possible, the shape that the same environment has beside its policy
        whole = all(group.lanes % task.block == 0 for group in groups)
        task = task if whole else task._replace(block=groups[0].lanes)
        self._env: Env = task.env  # type: ignore[assignment]
        step: Any = self._env.step
        in_blocks = partial(map_blocks(lambda _, *at: step(*at), task.block), ())
        self._step = jax.jit(in_blocks if self._env.pure else step)
        self._begin = initial.episode_starter(task)
        try:
            for first_lane in self._groups:
                self.reset(first_lane, 0)
        except BaseException:
            self.close()
            raise

    def reset(self, first_lane: int, episode: int) -> Step:
        self._free(first_lane)
        lane = np.arange(first_lane, first_lane + self._groups[first_lane].lanes, dtype=np.int32)
        self._states[first_lane], step = self._begin(self._seed, lane, episode)
        return step

    def step(self, first_lane: int, action: Any) -> Step:
        self._states[first_lane], step = self._step(self._states[first_lane], action)
        return step

    def state(self, first_lane: int) -> Tree:
        return without_keys(self._states[first_lane])

    def set_state(self, first_lane: int, state: Tree) -> None:
        kept = jax.tree.map(jnp.array, state)
        self._states[first_lane] = with_keys(self._states[first_lane], kept)

    def _free(self, first_lane: int) -> None:
        state = self._states.pop(first_lane, None)
        if state is not None and self._env.close is not None:
            self._env.close(state)

    def close(self) -> None:
        """Free the states outside of JAX."""
        for first_lane in self._groups:
            self._free(first_lane)
