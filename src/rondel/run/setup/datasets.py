"""Recorded episodes on disk, for algorithms that learn from demonstrations.

A file is one of safetensors: arrays [rows, ...] by name, `obs` (or `obs/…` for each part of a
tree), action, reward, terminated, truncated, valid, first. Episodes follow one another; one of n
steps has n + 1 rows, of which the last has nothing but the observation that it ended with, and is
not valid. Actions are in the units that policies act in: choices from 0, Box actions in -1..1.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save

from rondel.errors import RondelError, at_least
from rondel.execution.hostenv.seeds import Purpose
from rondel.execution.stages.rng import per_lane, purpose_key
from rondel.run.playback.single_env import single_env
from rondel.run.policy.policy import Policy
from rondel.run.storage.atomic_files import replace_file
from rondel.spaces import Box, Discrete, zeros
from rondel.types import Env, EnvSpec, HostWorld, Step, Trajectory, Tree

# (observation, what it said last time or None) -> (action, what to hand back next time)
Act: TypeAlias = Callable[[Tree, Any], tuple[Any, Any]]
_FLAGS = ("terminated", "truncated", "valid", "first")
_MAX_STEPS = 100_000  # of an episode
_HOW = "rondel.record(policy, file, env) writes one."


class Episode(NamedTuple):
    """An episode of n steps."""

    obs: Tree  # [n + 1, ...]: with the one that it ended with
    action: Any  # [n, ...]
    reward: Any  # [n]
    terminated: bool  # else it was cut off


def takes_demonstrations(make: Any) -> bool:
    """Does an algorithm's `make` take demonstrations?"""
    return "demonstrations" in inspect.signature(make).parameters


def absolute_path(config: Any) -> Any:
    """The config with the whole path of its file, so that a run can go on from any folder."""
    path = getattr(config, "demonstrations", "")
    return dataclasses.replace(config, demonstrations=str(Path(path).resolve())) if path else config


def play(act: Act, world: Env | HostWorld, episodes: int, seed: int) -> Iterator[Episode]:
    """Episodes one after the other, in one lane."""
    with closing(single_env(world, seed)) as lane:
        step = _kept(lane.begin(0))
        for _ in range(episodes):
            seen, carry = [step], None
            done: list[np.ndarray] = []
            while not (step.terminated[0] or step.truncated[0]):
                action, carry = act(jax.tree.map(lambda x: x[0], step.obs), carry)
                done.append(np.asarray(action, _units(world.spec)))
                step = _kept(lane.step(done[-1][None]))
                seen.append(step)
                if len(done) == _MAX_STEPS:
                    raise RondelError(
                        f"An episode did not end in {_MAX_STEPS:,} steps: an environment that cuts "
                        "its episodes off would work."
                    )
            obs = jax.tree.map(lambda *xs: np.stack(xs)[:, 0], *(s.obs for s in seen))
            reward = np.array([s.reward[0] for s in seen[1:]], np.float32)
            yield Episode(obs, np.stack(done), reward, bool(step.terminated[0]))
            step = _kept(lane.step(np.zeros_like(done[-1])[None]))  # which only resets


def _kept(step: Step) -> Step:
    """Host environments may write the next step where this one is."""
    return jax.tree.map(np.array, step)


def act_of(policy: Policy) -> Act:
    """What a policy does, greedily."""
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
    """Put episodes into a file, in the place of what was there."""
    tracks = [_track(episode) for episode in episodes]
    if not tracks:
        raise RondelError("There is no episode to write down: 1 or more would work.")
    track = jax.tree.map(lambda *xs: np.concatenate(xs), *tracks)
    try:
        replace_file(Path(path), save(_named(track)))
    except OSError as error:
        raise RondelError(
            f"{path} can't be written: {error.strerror}. Choose another file."
        ) from error


def read(path: str, spec: EnvSpec) -> Trajectory:
    """The episodes of a file as one lane's rows, for an environment that they must fit."""
    if not path:
        raise RondelError(f"demonstrations=… has to name a file of recorded episodes. {_HOW}")
    if not Path(path).is_file():
        raise RondelError(f"demonstrations={path!r}: there is no such file. {_HOW}")
    try:
        arrays = load_file(path)
    except Exception as error:  # whatever safetensors and NumPy make of it
        raise RondelError(f"{path} holds no demonstrations ({error}). {_HOW}") from None
    rows = len(arrays["reward"]) if "reward" in arrays else 0
    action = zeros(spec.action, rows).astype(_units(spec))
    like = {"obs": zeros(spec.observation, rows), "action": action}
    like |= {"reward": np.zeros(rows, np.float32)}
    like |= {name: np.zeros(rows, bool) for name in _FLAGS}
    wanted = _named(like)
    for name, leaf in wanted.items():
        have = arrays.get(name)
        if have is None or (have.dtype, have.shape) != (leaf.dtype, leaf.shape) or not rows:
            held = "nothing" if have is None else f"{have.dtype} {list(have.shape)}"
            need = f"{leaf.dtype} {['rows', *leaf.shape[1:]]}".replace("'", "")
            raise RondelError(
                f"{path} has {held} for {name}, and {spec.id} needs {need}: are these "
                f"demonstrations of another environment? {_HOW}"
            )
    track = jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in wanted])
    if isinstance(spec.action, Discrete) and not _within(track["action"], spec.action.n):
        raise RondelError(
            f"{path} has actions beyond those of {spec.id}, which are 0 to {spec.action.n - 1}."
        )
    return _trajectory(track)


def record_with(
    act: Act, world: Env | HostWorld, path: str | os.PathLike[str], episodes: int, seed: int
) -> float:
    """Play and write down; the mean return."""
    at_least(1, episodes=episodes)
    played = list(play(act, world, episodes, seed))
    write(path, played)
    return float(np.mean([episode.reward.sum() for episode in played]))


def _units(spec: EnvSpec) -> str:
    """The dtype that policies act in."""
    return "float32" if isinstance(spec.action, Box) else spec.action.dtype


def _within(action: np.ndarray, n: int) -> bool:
    return bool(((action >= 0) & (action < n)).all())


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


def _named(track: dict[str, Any]) -> dict[str, np.ndarray]:
    pairs = jax.tree_util.tree_flatten_with_path(track)[0]
    names = (jax.tree_util.keystr(keys, simple=True, separator="/") for keys, _ in pairs)
    return {name: np.ascontiguousarray(leaf) for name, (_, leaf) in zip(names, pairs, strict=True)}


def _trajectory(track: dict[str, Any]) -> Trajectory:
    rows = jax.tree.map(lambda x: x[:, None], track)

    def longer(x: Any) -> Any:
        return np.concatenate([x, x[-1:]])

    return Trajectory(
        obs=jax.tree.map(longer, rows.pop("obs")),
        first=longer(rows.pop("first")),
        **rows,
        extras=(),
        carry=(),
        lane=jnp.zeros(1, jnp.int32),
    )
