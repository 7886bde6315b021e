"""Greedy episodes in fresh environments: how good a policy is.

Every lane plays the same number of episodes, so short ones don't count more often than long ones.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rondel.execution.hostenv.seeds import Purpose, lane_seeds
from rondel.execution.stages.acting import compute_action
from rondel.execution.stages.task import to_device
from rondel.ops import random
from rondel.ops.random import per_lane, purpose_key
from rondel.types import Algorithm, Array, Env, HostWorld, Step, Tree

_HOST_LANES = 20  # host environments are made one by one
_TRACED_LANES = 500
_MAX_STEPS = 100_000  # of a lane: some policies never end an episode


class Evaluation(NamedTuple):
    """The episodes of an evaluation, in order."""

    returns: np.ndarray
    lengths: np.ndarray
    unfinished: int = 0  # episodes of more than 100,000 steps, counted as far as they got

    @property
    def mean(self) -> float:
        return float(self.returns.mean())


class _Tally(NamedTuple):
    """Episodes that each lane has ended [b, quota], and how many that is [b]."""

    returns: Tree
    lengths: Tree
    ended: Tree


class Evaluator:
    """Plays greedy episodes; the program is compiled once, however often it plays."""

    def __init__(self, algorithm: Algorithm, env: Env | HostWorld, episodes: int) -> None:
        self._algorithm, self._env, self._episodes = algorithm, env, episodes
        most = _TRACED_LANES if isinstance(env, Env) else _HOST_LANES
        self._lane: Tree = np.arange(min(episodes, most), dtype=np.int32)
        self._quota = -(-episodes // len(self._lane))
        if isinstance(env, Env):
            self._start = jax.jit(env.init) if env.pure else env.init
            self._play = jax.jit(partial(_traced, algorithm, env, self._quota))
        else:
            self._play = jax.jit(partial(greedy, algorithm))

    def play(self, weights: Tree, seed: int) -> Evaluation:
        """The episodes of these weights. The environments' randomness comes from `seed`."""
        env, lane, key = self._env, self._lane, purpose_key(seed, Purpose.EVALUATE, 1)
        if not isinstance(env, Env):
            return _collect(*self._on_host(env, weights, seed, key), self._episodes)
        begun = self._start(per_lane(purpose_key(seed, Purpose.EVALUATE), lane))
        try:
            tally, step = jax.tree.map(np.asarray, self._play(weights, *begun, key, lane))
        finally:
            if env.close is not None:
                env.close(begun[0])
        return _collect(tally, step, self._episodes)

    def _on_host(
        self, world: HostWorld, weights: Tree, seed: int, key: Array
    ) -> tuple[_Tally, Step]:
        lane, carry = self._lane, self._algorithm.carry(self._lane)
        with closing(world.make(len(lane), 0)) as env:
            step = env.reset(lane_seeds(seed, Purpose.EVALUATE, len(lane)))
            tally = _none_yet(np, len(lane), self._quota)
            for t in range(_MAX_STEPS):
                action, carry = self._play(weights, carry, to_device(step), key, lane, t)
                step = env.step(np.asarray(action))
                tally = _count(np, tally, step)
                if (tally.ended >= self._quota).all():
                    break
        return tally, step


def greedy(
    algorithm: Algorithm, weights: Tree, carry: Tree, step: Step, key: Array, lane: Array, t: Array
) -> tuple[Array, Tree]:
    """The actions of step t, and what the lanes remember then."""
    keys = per_lane(random.fold(key, t), lane)
    action, carry, _, _ = compute_action(
        algorithm, weights, carry, step.obs, step.first, keys, lane, explore=False
    )
    return action, carry


def _traced(
    algorithm: Algorithm,
    env: Env,
    quota: int,
    weights: Tree,
    state: Tree,
    step: Step,
    act_key: Array,
    lane: Array,
) -> tuple[_Tally, Step]:

    def one(loop: Tree) -> Tree:
        state, step, carry, tally, t = loop
        action, carry = greedy(algorithm, weights, carry, step, act_key, lane, t)
        state, step = env.step(state, action)
        return state, step, carry, _count(jnp, tally, step), t + 1

    def goes_on(loop: Tree) -> Array:
        *_, tally, t = loop
        return (tally.ended < quota).any() & (t < _MAX_STEPS)

    tally = _none_yet(jnp, lane.shape[0], quota)
    loop = (state, step, algorithm.carry(lane), tally, jnp.int32(0))
    _, step, _, tally, _ = lax.while_loop(goes_on, one, loop)
    return tally, step


def _none_yet(xp: Any, lanes: int, quota: int) -> _Tally:
    """Before the first step, in NumPy or JAX (`xp`)."""
    shape = (lanes, quota)
    return _Tally(xp.zeros(shape, np.float32), xp.zeros(shape, np.int32), xp.zeros(lanes, np.int32))


def _count(xp: Any, tally: _Tally, step: Step) -> _Tally:
    done = (step.terminated | step.truncated) & (step.episode_length > 0)
    quota = tally.returns.shape[1]
    here = (xp.arange(quota)[None] == tally.ended[:, None]) & done[:, None]
    return _Tally(
        xp.where(here, step.episode_return[:, None], tally.returns),
        xp.where(here, step.episode_length[:, None], tally.lengths),
        tally.ended + done,
    )


def _collect(tally: _Tally, step: Step, episodes: int) -> Evaluation:
    """All episodes, lane by lane; one that ran out of time counts as far as it got."""
    returns, lengths, ended = (np.array(x) for x in tally)
    quota = returns.shape[1]
    late = np.flatnonzero(ended < quota)
    returns[late, ended[late]] = np.asarray(step.episode_return)[late]
    lengths[late, ended[late]] = np.asarray(step.episode_length)[late]
    played = np.arange(quota)[None] <= ended[:, None]
    return Evaluation(returns[played][:episodes], lengths[played][:episodes], len(late))
