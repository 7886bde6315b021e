"""A toy algorithm that uses every hook: carry, start, overlap, statistics, targets, feedback."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rondel.execution.hostenv.seeds import Purpose
from rondel.memory.replay import Transitions, prioritised
from rondel.ops import random
from rondel.ops.random import per_lane, purpose_key
from rondel.ops.returns import n_step_returns
from rondel.ops.statistics import masked_mean
from rondel.types import Algorithm, EnvSpec, HostWorld, Step, Trajectory


class State(NamedTuple):
    params: Any
    target: Any
    mean: Any
    seen: Any


def make(config: None, spec: EnvSpec) -> Algorithm:
    width, n = 16, 2
    features = spec.observation.shape[0]

    def net(params: Any, h: Any, x: Any) -> Any:
        h = jnp.tanh(x @ params["w"] + h @ params["u"])
        return h, h @ params["o"]

    def init(key: Any) -> State:
        k = jax.random.split(key, 3)
        params = {
            "w": jax.random.normal(k[0], (features, width)),
            "u": jax.random.normal(k[1], (width, width)) / 8,
            "o": jax.random.normal(k[2], (width, n)),
        }
        return State(params, params, jnp.zeros(features), jnp.float32(0))

    def act(weights: Any, carry: Any, obs: Any, keys: Any, explore: bool, own: Any = 0.0) -> Any:
        params, mean = weights
        h, q = net(params, carry["h"] + own, obs - jnp.broadcast_to(mean, obs.shape))
        u = random.uniform(keys, 2)
        greedy = q.argmax(-1).astype(jnp.int32)
        other = (u[:, 1] > 0.5).astype(jnp.int32)
        action = jnp.where(u[:, 0] < carry["epsilon"], other, greedy) if explore else greedy
        return action, {**carry, "h": h}, {"q": q.max(-1)}

    def start(weights: Any, key: Any, lane: Any) -> Any:
        return 0.01 * random.normal(random.fold(key[None], lane), width)

    def prepare(weights: Any, tr: Trajectory) -> Any:
        reward, discount, offset, valid = n_step_returns(
            tr.reward, tr.terminated, tr.truncated, tr.valid, 0.9, 3
        )
        rows = reward.shape[0]
        # whatever the carry was, it leaves a trace in what is learned from
        trace = jnp.broadcast_to(jnp.abs(tr.carry["h"]).sum(-1)[None], reward.shape)
        priority = jnp.abs(reward) + jnp.abs(tr.extras["q"][:rows]) + trace
        items = Transitions(tr.obs, tr.action[:rows], reward, discount, offset, valid, priority)
        items = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), items)
        observed = jnp.where(tr.valid[2:, :, None], tr.obs[2:-1], 0.0).sum(0)
        return items, (observed, tr.valid[2:].sum(0).astype(jnp.float32))

    def absorb(state: State, summary: Any) -> State:
        total, count = summary
        seen = state.seen + count.sum()
        mean = state.mean + (total.sum(0) - count.sum() * state.mean) / jnp.maximum(seen, 1.0)
        return state._replace(mean=mean, seen=seen)

    def gradient(variables: Any, batch: Any, key: Any) -> Any:
        params, target, mean = variables
        noise = 0.01 * jax.random.normal(key, batch.reward.shape)

        def loss(params: Any) -> Any:
            rows = batch.obs.shape[0]
            h = jnp.zeros((rows, width))
            here = batch.obs - jnp.broadcast_to(mean, batch.obs.shape)
            there = batch.next_obs - jnp.broadcast_to(mean, batch.next_obs.shape)
            q = jnp.sum(net(params, h, here)[1] * jax.nn.one_hot(batch.action, n), -1)
            goal = batch.reward + batch.discount * net(target, h, there)[1].max(-1) + noise
            td = jax.lax.stop_gradient(goal) - q
            return masked_mean(td**2 / jnp.maximum(batch.ratio, 0.1), batch.valid), jnp.abs(td)

        (value, td), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return grads, batch.valid.sum().astype(jnp.float32), td, {"loss": value}

    def update(state: State, grads: Any) -> State:
        params = jax.tree.map(lambda p, g: p - 1e-3 * g, state.params, grads)
        target = jax.tree.map(lambda p, t: 0.1 * p + 0.9 * t, params, state.target)
        return state._replace(params=params, target=target)

    return Algorithm(
        init=init,
        acting=lambda state: (state.params, state.mean),
        learning=lambda state: (state.params, state.target, state.mean),
        absorb=absorb,
        gradient=gradient,
        update=update,
        carry=lambda lane: {"h": jnp.zeros((lane.shape[0], width)), "epsilon": lane / spec.lanes},
        act=act,
        prepare=prepare,
        start=start,
        memory=prioritised(2_000, 32, 4, 0.6, warmup_rounds=2, ahead=3),
        rollout=8,
        overlap=2,
        max_lag=None,
    )


def labelled(config: None, spec: EnvSpec) -> Algorithm:
    """The same, with goals that are made apart: from the target, each with noise of its own."""
    algorithm = make(config, spec)

    def label(variables: Any, batch: Any, keys: Any) -> Any:
        _, target, mean = variables
        there = batch.next_obs - jnp.broadcast_to(mean, batch.next_obs.shape)
        ahead = (jnp.tanh(there @ target["w"]) @ target["o"]).max(-1)
        noise = 0.1 * random.normal(keys, 1)[:, 0]
        goal = batch.reward + batch.discount * ahead + noise
        return batch._replace(reward=goal, discount=jnp.zeros_like(goal))

    return algorithm._replace(label=label)


class HostTwin:
    """A traceable environment behind the host protocol: NumPy in, NumPy out."""

    def __init__(self, env: Any, seed: int, lane: Any) -> None:
        self._init, self._step = jax.jit(env.init), jax.jit(env.step)
        self._seed, self._lane, self._resets = seed, lane, 0

    def reset(self, seeds: Any) -> Step:
        again = max(0, self._resets - 1)  # a run's start and its round 0 are the same
        self._resets += 1
        self._state, step = self._init(
            per_lane(purpose_key(self._seed, Purpose.ENV, again), self._lane)
        )
        return jax.tree.map(np.asarray, step)

    def step(self, action: Any) -> Step:
        self._state, step = self._step(self._state, action)
        return jax.tree.map(np.asarray, step)

    def close(self) -> None:
        pass


def host_twin(env: Any, seed: int, kind: type[HostTwin] = HostTwin) -> HostWorld:
    """The same environment, met as a stranger: it starts as in a run of `seed`."""
    return HostWorld(env.spec, lambda b, first: kind(env, seed, np.arange(first, first + b)))
