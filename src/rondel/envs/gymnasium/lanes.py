"""Gymnasium environments side by side in one process: a `HostEnv`.

The loop over environments is flat: with a fast environment, every Python call in it shows in the
steps per second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from rondel.envs.errors import EnvError
from rondel.envs.gymnasium.raw_check import check_raw_env
from rondel.envs.gymnasium.spaces import ShapeMismatch, masked_writer, translator, writer
from rondel.errors import RondelError
from rondel.spaces import Discrete, zeros
from rondel.types import EnvSpec, Step

_DTYPES = (np.float32, np.bool_, np.bool_, np.bool_, np.float32, np.int32)  # of a Step after obs


class Lanes:
    """b environments of one kind, stepped one after the other. Returned arrays are always new.

    `masked`: info["action_mask"] becomes a part of the observation. `first_lane` is the number of
    lane 0 in the whole run, for messages.
    """

    def __init__(
        self, envs: Sequence[Any], spec: EnvSpec, masked: bool = False, first_lane: int = 0
    ) -> None:
        self.envs = list(envs)
        self._spec, self._masked, self._first_lane = spec, masked, first_lane
        space = self.envs[0].observation_space
        self._write = masked_writer(space) if masked else writer(space)
        self._translate = translator(self.envs[0].action_space)
        self._seeds: list[int] = []
        # for another process to read: the lane whose turn it is, or -2 - lane while it resets
        self.at = memoryview(bytearray(4)).cast("i")

    def reset(self, seeds: Any) -> Step:
        """Start an episode in every lane, with seeds[i] in lane i; later ones continue from it."""
        b, write, masked = len(self.envs), self._write, self._masked
        self._seeds = [int(seed) for seed in seeds]
        self._over, self._totals, self._lengths = [False] * b, [0.0] * b, [0] * b
        stacked = zeros(self._spec.observation, b)
        lane, at = 0, self.at
        try:
            for lane, env in enumerate(self.envs):
                at[0] = lane
                obs, info = env.reset(seed=self._seeds[lane])
                write(stacked, lane, (obs, info) if masked else obs)
        except KeyboardInterrupt:  # `Terminated` is a SystemExit too
            raise
        except (Exception, SystemExit) as error:  # an environment must not end the run
            raise self._explain(error, lane, None) from error
        never = [False] * b
        return record(stacked, self._totals, never, never, [True] * b, self._totals, self._lengths)

    def step(self, action: Any) -> Step:
        """One step in every lane; a lane whose episode is over ignores its action and resets."""
        b, write, masked = len(self.envs), self._write, self._masked
        first, totals, lengths = self._over, self._totals, self._lengths
        rewards, terminated, truncated, over = [0.0] * b, [False] * b, [False] * b, [False] * b
        actions = self._translate(action)
        if isinstance(self._spec.action, Discrete):
            actions = actions.tolist()  # environments check and compare plain ints fastest
        stacked = zeros(self._spec.observation, b)
        lane, at = 0, self.at
        try:
            for lane, env in enumerate(self.envs):
                at[0] = lane
                if first[lane]:
                    at[0] = -2 - lane
                    obs, info = env.reset()
                    totals[lane], lengths[lane] = 0.0, 0
                else:
                    obs, reward, ended, cut, info = env.step(actions[lane])
                    rewards[lane] = reward = float(reward)
                    totals[lane] += reward
                    lengths[lane] += 1
                    if ended or cut:
                        terminated[lane], truncated[lane], over[lane] = ended, cut, True
                write(stacked, lane, (obs, info) if masked else obs)
        except KeyboardInterrupt:  # `Terminated` is a SystemExit too
            raise
        except (Exception, SystemExit) as error:  # an environment must not end the run
            raise self._explain(error, lane, None if first[lane] else actions[lane]) from error
        self._over = over
        return record(stacked, rewards, terminated, truncated, first, totals, lengths)

    def check(self) -> None:
        """Check each raw environment: its errors name what its author wrote."""
        for env in self.envs:
            check_raw_env(env, self._spec.id)

    def picture(self) -> Any:
        """The first lane's picture; None if it was not made to be drawn."""
        env, where = self.envs[0], f"{self._spec.id} can't be drawn"
        if env.render_mode != "rgb_array":
            return None
        try:
            return env.render()
        except gymnasium.error.DependencyNotInstalled as error:
            raise RondelError(f'{where}: {error} (pip install "rondel[video]")') from error
        except Exception as error:
            raise EnvError(f"{where}: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Close every environment, even if one fails to."""
        failure = None
        for env in self.envs:
            try:
                env.close()
            except Exception as error:
                failure = error
        if failure is not None:
            raise EnvError(f"{self._spec.id} failed to close: {failure}") from failure

    def _explain(self, error: BaseException, lane: int, action: Any) -> EnvError:
        call = "reset" if action is None else "step"
        acted = "" if action is None else f"last action {action!r}, "
        did = f"raised {type(error).__name__} in {call}: {error}"
        if isinstance(error, ShapeMismatch):
            did = f"returned {error}, in {call}"
        where = f"lane {self._first_lane + lane}, seed {self._seeds[lane]}"
        return EnvError(
            f"{self._spec.id} {did} ({where}, {acted}"
            f"after {self._lengths[lane]} steps of its episode)"
        )


def record(obs: Any, *fields: Any) -> Step:
    """A Step of new NumPy arrays from sequences [b]."""
    arrays: Any = map(np.array, fields, _DTYPES)
    return Step(obs, *arrays)
