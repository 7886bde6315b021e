"""Gymnasium's vector entry points, where the lanes of one are truly independent.

Rondel promises that a lane goes the same way whatever other lanes run beside it. Some vector
environments break that (the one of CartPole-v1 draws the resets of all lanes from one generator),
so each is tried out before it is used.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from rondel.envs.errors import EnvError
from rondel.envs.guard.sampling import leaves, random_action
from rondel.envs.gymnasium.lanes import record
from rondel.envs.gymnasium.spaces import translator, writer
from rondel.envs.world import split
from rondel.spaces import zeros
from rondel.types import EnvSpec, Step

TRIAL_STEPS = 300


class VectorLanes:
    """b lanes of one vector environment. Every array that it returns is a fresh one."""

    def __init__(self, name: str, spec: EnvSpec, b: int, first_lane: int = 0) -> None:
        self._env, self._spec, self._b = _make(name, b), spec, b
        self._where = f"one of the lanes {first_lane} to {first_lane + b - 1}"
        self._write = writer(self._env.single_observation_space)
        self._translate = translator(self._env.single_action_space)

    def reset(self, seeds: Any) -> Step:
        """Start an episode in every lane, with seeds[i] in lane i; later ones go on from there."""
        try:
            obs, _ = self._env.reset(seed=[int(seed) for seed in seeds])
        except KeyboardInterrupt:  # one kind is a SystemExit too
            raise
        except (Exception, SystemExit) as error:  # the end of the run is not its to decide
            raise self._explain(error, "reset()") from error
        self._over = np.zeros(self._b, bool)
        self._totals, self._lengths = np.zeros(self._b), np.zeros(self._b, np.int32)
        return self._record(obs, self._totals, self._over, self._over, ~self._over)

    def step(self, action: Any) -> Step:
        """One step in every lane; a lane whose episode is over ignores its action and resets."""
        try:
            obs, reward, terminated, truncated, _ = self._env.step(self._translate(action))
        except KeyboardInterrupt:  # one kind is a SystemExit too
            raise
        except (Exception, SystemExit) as error:  # the end of the run is not its to decide
            raise self._explain(error, "step()") from error
        first = self._over
        self._over = terminated | truncated
        self._totals = np.where(first, 0.0, self._totals + reward)
        self._lengths = np.where(first, 0, self._lengths + 1)
        return self._record(obs, reward, terminated, truncated, first)

    def close(self) -> None:
        """Free what the lanes hold."""
        self._env.close()

    def _record(self, obs: Any, reward: Any, terminated: Any, truncated: Any, first: Any) -> Step:
        stacked = zeros(self._spec.observation, self._b)
        self._write(stacked, slice(None), obs)
        return record(stacked, reward, terminated, truncated, first, self._totals, self._lengths)

    def _explain(self, error: BaseException, call: str) -> EnvError:
        return EnvError(
            f"{self._spec.id} raised {type(error).__name__} in {call}: {error} (in {self._where})"
        )


def usable(name: str, env: Any, spec: EnvSpec) -> bool:
    """Whether `name` has a vector entry point that does in each lane what one lane does alone.

    It must have the spaces of `env`, the single environment, and reset on the step after an
    episode's end. Then two lanes together are compared with each of them alone until both have
    been through a reset. One that fails, or whose episodes are too long for that, stays unproven
    and is not used.
    """
    if env.spec is None or env.spec.vector_entry_point is None:
        return False
    try:
        alone = _make(name, 1)
        alike = (
            alone.single_observation_space == env.observation_space
            and alone.single_action_space == env.action_space
            and alone.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP
        )
        alone.close()
        return alike and _independent(name, spec)
    except Exception:  # whatever it dislikes, the loop over single environments does without
        return False


def _independent(name: str, spec: EnvSpec) -> bool:
    pair, *alone = (VectorLanes(name, spec, b) for b in (2, 1, 1))
    both = pair.reset([11, 12])
    each = [alone[0].reset([11]), alone[1].reset([12])]
    random = np.random.default_rng(0)
    been_reset = np.zeros(2, bool)
    for _ in range(TRIAL_STEPS):
        if not all(_same(spec, both, lane, step) for lane, step in enumerate(each)):
            return False
        if been_reset.all():
            return True
        action = random_action(spec.action, 2, random)
        both = pair.step(action)
        each = [lane.step(action[i : i + 1]) for i, lane in enumerate(alone)]
        been_reset |= np.array(both.first)
    return False


def _same(spec: EnvSpec, both: Step, lane: int, alone: Step) -> bool:
    """Whether one lane of two looks like the one that runs alone."""
    pairs = zip(
        leaves(spec.observation, both.obs), leaves(spec.observation, alone.obs), strict=True
    )
    return bool(both.reward[lane] == alone.reward[0]) and all(
        np.array_equal(a[lane], b[0]) for (_, _, a), (_, _, b) in pairs
    )


def _make(name: str, b: int) -> Any:
    bare, arguments = split(name)
    return gymnasium.make_vec(bare, b, vectorization_mode="vector_entry_point", **arguments)
