"""The env stage over environments outside JAX. It imports no jax.

An env copy holds groups of lanes, each of which steps at its own time; a group is named by its
first lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Protocol

from rondel.execution.hostenv.crash_record import Recorder
from rondel.execution.hostenv.partition import Group
from rondel.execution.hostenv.seeds import Purpose, lane_seeds
from rondel.execution.requests import RESET, SET_STATE, STATE, STEP, Request
from rondel.execution.telemetry.timing import SIMULATOR, Metered
from rondel.types import HostEnv, HostWorld, Step


class EnvApi(Protocol):
    """The requests of an env copy, each for a group of lanes."""

    def send(self, request: Request, *args: Any) -> Any:
        """Hand over a request and its arguments; the first is the group's first lane."""

    def reset(self, first_lane: int, episode: int) -> Any:
        """New episodes in every lane of a group, others for each number `episode`."""
        return self.send(RESET, first_lane, episode)

    def step(self, first_lane: int, action: Any) -> Any:
        """One step of a group."""
        return self.send(STEP, first_lane, action)

    def state(self, first_lane: int) -> Any:
        """The state of a group, where the environment has one."""
        return self.send(STATE, first_lane)

    def set_state(self, first_lane: int, state: Any) -> Any:
        """Put a group back to what `state` once gave."""
        return self.send(SET_STATE, first_lane, state)


class EnvClient(EnvApi, Protocol):
    """A policy copy's connection to an env copy: send a request, do other work, take the answer."""

    def take(self, first_lane: int) -> Step:
        """The answer to the last request for a group; its arrays last until the next request."""


class HostEnvs(Metered):
    """The groups of lanes of an env copy; answers the requests of `EnvApi`."""

    kind = SIMULATOR

    def __init__(self, world: HostWorld, seed: int, groups: Sequence[Group]) -> None:
        self._seed = seed
        self._groups = {group.first_lane: group for group in groups}
        self._envs: dict[int, HostEnv] = {}
        self._recorder: Recorder | None = None
        try:
            for first_lane, group in self._groups.items():
                self._envs[first_lane] = world.make(group.lanes, first_lane)
        except BaseException:
            self.close()
            raise

    def reset(self, first_lane: int, episode: int) -> Step:
        lanes = self._groups[first_lane].lanes
        seeds = lane_seeds(self._seed, Purpose.ENV, lanes, episode, first_lane=first_lane)
        if self._recorder is None:
            return self._envs[first_lane].reset(seeds)
        with self._recorder.resetting(seeds):
            return self._envs[first_lane].reset(seeds)

    def step(self, first_lane: int, action: Any) -> Step:
        if self._recorder is None:
            return self._envs[first_lane].step(action)
        self._recorder.enter(action)
        step = self._envs[first_lane].step(action)
        self._recorder.leave()
        return step

    def record(self, recorder: Recorder) -> None:
        """Write down each step and reset before it is taken."""
        self._recorder = recorder
        for env in self._envs.values():
            if hasattr(env, "at"):
                env.at = recorder.lane

    def close(self) -> None:
        """Free what the environments hold."""
        with ExitStack() as everyone:  # also when one of them fails to
            for env in self._envs.values():
                everyone.callback(env.close)


class DirectEnvClient(EnvClient):
    """A connection to an env copy in the same thread."""

    def __init__(self, stage: Any) -> None:
        self._stage = stage
        self._answers: dict[int, Step] = {}

    def send(self, request: Request, *args: Any) -> None:
        self._answers[args[0]] = getattr(self._stage, request.name)(*args)

    def take(self, first_lane: int) -> Step:
        return self._answers.pop(first_lane)
