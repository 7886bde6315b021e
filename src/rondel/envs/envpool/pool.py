"""EnvPool: 1,600 ids, stepped by threads in C++.

Weng et al., EnvPool: A Highly Parallel Reinforcement Learning Environment Execution Engine, arXiv
2206.10558. Atari ids have the usual preprocessing (84 x 84 grey pixels, 4 frames skipped, 4
stacked) and rewards clipped to -1, 0, 1; reported returns are of whole games and unclipped, also
with `episodic_life`.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import envpool
import numpy as np
from gymnasium import spaces as gym_spaces

from rondel.envs.errors import EnvError
from rondel.envs.gymnasium.lanes import record
from rondel.envs.gymnasium.spaces import action_spec, observation_spec, translator, writer
from rondel.envs.world import refuse_unknown
from rondel.errors import RondelError
from rondel.spaces import Box, zeros
from rondel.types import EnvSpec, Step

DRAWN = {"render_mode": "rgb_array"}
"""The arguments for environments that can be drawn."""

_OURS = ("num_envs", "batch_size", "num_threads", "seed", "env_seed", "max_num_players")


def registered() -> list[str]:
    """All ids of EnvPool."""
    return sorted(envpool.list_all_envs())


def look(name: str, task: str, arguments: dict[str, Any]) -> tuple[EnvSpec, dict[str, Any]]:
    """The spec of an id, and its arguments with Rondel's defaults."""
    if taken := [key for key in arguments if key in _OURS]:
        raise RondelError(
            f"{name} can't set {', '.join(taken)}: EnvPool gets these from the run. Use --lanes "
            "and --seed."
        )
    known = _fields(name, task, arguments)
    refuse_unknown(name, arguments, set(known).difference(_OURS))
    if "reward_clip" in known:
        arguments = {"reward_clip": True} | arguments
    pool = make_pool(name, task, arguments, [0])
    try:
        players = pool.config.get("max_num_players", 1)
        if players != 1:
            raise RondelError(f"{name} must have 1 player, got {players}. Use a single-player id.")
        observation = observation_spec(without_bounds(pool.observation_space), name)
        action = action_spec(without_bounds(pool.action_space), name)
        # Atari; VizDoom repeats the last stack of an episode, which is not a shift
        if "noop_max" in known and isinstance(observation, Box):
            observation = replace(observation, frames=pool.config.get("stack_num", 1))
        return EnvSpec(name, observation, action), arguments
    finally:
        pool.close()


def without_bounds(space: Any) -> Any:
    """An EnvPool space with its missing bounds.

    For a missing lower bound EnvPool writes the least positive number. This must be found before
    rounding: in 32 bits that of 64 is 0.
    """
    match space:
        case gym_spaces.Dict():
            return gym_spaces.Dict({key: without_bounds(part) for key, part in space.items()})
        case gym_spaces.Box() if np.issubdtype(space.dtype, np.floating):
            tiny = np.finfo(space.dtype).tiny
            low = np.where(space.low == tiny, -np.inf, space.low)
            return gym_spaces.Box(low, space.high, dtype=low.dtype.type)
    return space


def _fields(name: str, task: str, arguments: dict[str, Any]) -> tuple[str, ...]:
    """The arguments that an id has."""
    failure: Exception | None = None
    for given in ({}, arguments):  # some require arguments: VizdoomCustom-v1 its files
        try:
            return tuple(envpool.make_spec(task, **given).config._fields)
        except Exception as error:
            failure = error
    # something is not installed: a traceback would not help
    raise RondelError(f"{name} can't be made: {failure}") from failure


def make_pool(name: str, task: str, arguments: dict[str, Any], seeds: list[int]) -> Any:
    """Make a pool with a lane for each seed."""
    threads = min(len(seeds), len(os.sched_getaffinity(0)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that bounds of 64 bits are rounded to 32
            pool = envpool.make_gymnasium(
                task, num_envs=len(seeds), seed=seeds, num_threads=threads, **arguments
            )
            _ = pool.observation_space, pool.action_space  # made at first use
            if DRAWN.items() <= arguments.items():
                _show_opengl()
            return pool
    except Exception as error:
        raise EnvError(f"{name} can't be made: {type(error).__name__}: {error}") from error


def _show_opengl() -> None:
    """Make EnvPool's own EGL library, for drawing without a screen, visible to MuJoCo.

    MuJoCo looks among the process's global libraries. EnvPool loads its copy as a local one, and
    only that copy works.
    """
    with suppress(OSError):
        mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
        drawing = [path for path in mapped if Path(path).name.startswith(("libEGL-", "libEGL."))]
        for path in sorted(drawing, key=lambda path: "envpool" not in path)[:1]:
            ctypes.CDLL(path, os.RTLD_NOLOAD | os.RTLD_GLOBAL)


class Count(NamedTuple):
    """Counts of the episodes in b lanes, which the pool does not keep."""

    over: Any  # [b] bool: the last step ended an episode, so the next one only resets
    ended: Any  # [b] bool: and it was the end of a whole game, not just of a life
    total: Any  # [b]: the game's rewards so far, unclipped
    length: Any  # [b] int32: its steps so far


def nothing_yet(b: int) -> Count:
    """Before the first step."""
    never = np.zeros(b, bool)
    return Count(never, never, np.zeros(b, np.float32), np.zeros(b, np.int32))


def account(
    xp: Any, before: Count, reward: Any, terminated: Any, truncated: Any, info: Any
) -> tuple[Count, Any, Any]:
    """Count a step, in NumPy or JAX (`xp`) -> (count, reward, length to report).

    With `episodic_life` a lost life ends the learner's episode, but not the game: then the reported
    length is 0, and the game's return continues.
    """
    over = terminated | truncated
    ended = over & (info["terminated"].astype(bool) | truncated) if "terminated" in info else over
    earned = info.get("reward", reward)
    total = xp.where(before.ended, 0.0, before.total + xp.where(before.over, 0.0, earned))
    length = xp.where(before.ended, 0, before.length + ~before.over)
    count = Count(over, ended, total.astype(np.float32), length.astype(np.int32))
    return count, xp.where(before.over, 0.0, reward), xp.where(over & ~ended, 0, count.length)


class PoolLanes:
    """b lanes of an EnvPool pool. Returned arrays are always new."""

    def __init__(
        self, spec: EnvSpec, task: str, arguments: dict[str, Any], b: int, first_lane: int = 0
    ) -> None:
        self._spec, self._task, self._arguments, self._b = spec, task, arguments, b
        self._where = f"one of the lanes {first_lane} to {first_lane + b - 1}"
        self._pool: Any = None

    def reset(self, seeds: Any) -> Step:
        """Make a new pool: EnvPool takes seeds only then."""
        self.close()
        self._pool = make_pool(self._spec.id, self._task, self._arguments, [int(s) for s in seeds])
        self._write = writer(self._pool.observation_space)
        self._translate = translator(without_bounds(self._pool.action_space))
        self._count = none = nothing_yet(self._b)
        obs, _ = self._call(self._pool.reset)
        return self._record(obs, none.total, none.over, none.over, ~none.over, none.length)

    def step(self, action: Any) -> Step:
        """One step in every lane; a lane whose episode is over ignores its action and resets."""
        obs, reward, terminated, truncated, info = self._call(
            self._pool.step, self._translate(action)
        )
        first = self._count.over
        self._count, reward, length = account(np, self._count, reward, terminated, truncated, info)
        return self._record(obs, reward, terminated, truncated, first, length)

    def picture(self) -> Any:
        """The first lane's picture; None if EnvPool has none."""
        try:
            return np.array(self._pool.render())[0]
        except Exception:  # some of its families can't be drawn
            return None

    def close(self) -> None:
        """Free the pool."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _call(self, method: Any, *args: Any) -> Any:
        try:
            return method(*args)
        except Exception as error:
            raise EnvError(
                f"{self._spec.id} raised {type(error).__name__}: {error} (in {self._where})"
            ) from error

    def _record(self, obs: Any, *fields: Any) -> Step:
        reward, terminated, truncated, first, length = fields
        stacked = zeros(self._spec.observation, self._b)
        self._write(stacked, slice(None), obs)
        return record(stacked, reward, terminated, truncated, first, self._count.total, length)
