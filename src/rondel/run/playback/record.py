"""Recorded episodes as demonstrations: `record` plays greedy episodes and writes them to a file.

`run.setup.datasets` describes and reads these files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save

from rondel.envs.guard.guarded_env import DEADLINE, with_deadline
from rondel.envs.registry import make
from rondel.errors import RondelError, at_least
from rondel.execution.hostenv.seeds import Purpose
from rondel.ops.random import per_lane, purpose_key
from rondel.run.playback.evaluate import check_deadline, opened
from rondel.run.playback.single_env import single_env
from rondel.run.policy.policy import Policy
from rondel.run.session.run import Run
from rondel.run.setup import jax_process
from rondel.run.setup.datasets import action_dtype, named_arrays
from rondel.run.storage.atomic_files import explain_failure, refuse_to_replace, replace_file
from rondel.types import Env, HostWorld, Step, Tree

# (observation, its carry or None) -> (action, carry for the next call)
Act: TypeAlias = Callable[[Tree, Any], tuple[Any, Any]]
_MAX_STEPS = 100_000  # of an episode


class Episode(NamedTuple):
    """An episode of n steps."""

    obs: Tree  # [n + 1, ...]: the final one too
    action: Any  # [n, ...]
    reward: Any  # [n]
    terminated: bool  # else truncated


def record(
    what: Run | Policy | str | os.PathLike[str] | Act,
    file: str | os.PathLike[str],
    env: Any = None,
    *,
    episodes: int = 100,
    seed: int = 0,
    overwrite: bool = False,
    algorithm: Any = None,
    config: Any = None,
    network: Any = None,
    deadline: float | None = None,
) -> float:
    """Write greedy episodes to a file of demonstrations; returns their mean return.

    `what` is a run, a policy, a run's folder, or your own function `act(obs, carry) -> (action,
    carry)` for single observations. Its carry is None at the start of an episode, then what it last
    returned; its actions are choices from 0, or in -1..1. The rest is as in `evaluate`.

    >>> rondel.record(run, "demonstrations.safetensors", episodes=100)
    """
    at_least(1, episodes=episodes)
    if callable(what) and env is None:
        raise RondelError("A function needs an environment to act in. Pass env=….")
    check_deadline(deadline)
    refuse_to_replace(Path(file), overwrite)
    if callable(what):
        jax_process.configure_jax()  # before anything starts JAX with other settings
        world = with_deadline(make(env), deadline or DEADLINE)
        return _record(what, world, file, episodes, seed)
    with opened(what, env, algorithm, config, network, deadline) as (policy, world):
        return _record(_act_of(policy), world, file, episodes, seed)


def _record(
    act: Act, world: Env | HostWorld, path: str | os.PathLike[str], episodes: int, seed: int
) -> float:
    played = list(play(act, world, episodes, seed))
    write(path, played)
    return float(np.mean([episode.reward.sum() for episode in played]))


def play(act: Act, world: Env | HostWorld, episodes: int, seed: int) -> Iterator[Episode]:
    """Play episodes one after the other, in one lane."""
    with closing(single_env(world, seed)) as lane:
        step = _copied(lane.begin(0))
        for _ in range(episodes):
            steps, carry = [step], None
            actions: list[np.ndarray] = []
            while not (step.terminated[0] or step.truncated[0]):
                action, carry = act(jax.tree.map(lambda x: x[0], step.obs), carry)
                actions.append(np.asarray(action, action_dtype(world.spec)))
                step = _copied(lane.step(actions[-1][None]))
                steps.append(step)
                if len(actions) == _MAX_STEPS:
                    raise RondelError(
                        f"An episode of {world.spec.id} did not end within {_MAX_STEPS:,} steps. "
                        "Use an environment with a time limit."
                    )
            obs = jax.tree.map(lambda *xs: np.stack(xs)[:, 0], *(s.obs for s in steps))
            reward = np.array([s.reward[0] for s in steps[1:]], np.float32)
            yield Episode(obs, np.stack(actions), reward, bool(step.terminated[0]))
            step = _copied(lane.step(np.zeros_like(actions[-1])[None]))  # this step only resets


def _copied(step: Step) -> Step:
    """A host environment may write the next step into the same arrays."""
    return jax.tree.map(np.array, step)


def _act_of(policy: Policy) -> Act:
    """A policy's greedy actions."""
    algorithm, lane = policy.algorithm, jnp.arange(1)
    greedy = jax.jit(lambda *at: algorithm.act(*at, False)[:2])
    keys = per_lane(purpose_key(0, Purpose.EVALUATE, 1), lane)

    def act(obs: Tree, carry: Tree) -> tuple[Any, Tree]:
        carry = algorithm.carry(lane) if carry is None else carry
        batch = jax.tree.map(lambda x: x[None], obs)
        action, carry = greedy(policy.weights, carry, batch, keys)
        return np.asarray(action)[0], carry

    return act


def write(path: str | os.PathLike[str], episodes: Iterable[Episode]) -> None:
    """Write episodes to a file, in place of an earlier one."""
    tracks = [_track(episode) for episode in episodes]
    track = jax.tree.map(lambda *xs: np.concatenate(xs), *tracks)
    with explain_failure(str(path)):
        replace_file(Path(path), save(named_arrays(track)))


def _track(episode: Episode) -> dict[str, Any]:
    """An episode's rows."""
    action, reward = np.asarray(episode.action), np.asarray(episode.reward, np.float32)
    row = np.arange(len(reward) + 1)
    last = row == len(reward) - 1

    def longer(x: np.ndarray) -> np.ndarray:
        return np.concatenate([x, np.zeros_like(x[:1])])

    return {
        "obs": jax.tree.map(np.asarray, episode.obs),
        "action": longer(action),
        "reward": longer(reward),
        "terminated": last & episode.terminated,
        "truncated": last & (not episode.terminated),
        "valid": row < len(reward),
        "first": row == 0,
    }
