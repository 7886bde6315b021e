"""The least task there is, for tests of processes: it traces in a moment. It learns nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rondel.spaces import Box, Discrete
from rondel.types import EnvSpec, HostWorld, Step

LANES = 4
SPEC = EnvSpec("own:Tiny", Box(np.zeros(2), np.ones(2)), Discrete(2), LANES)


def nothing(steps: int) -> None:
    """What happens in a step, if nothing else is asked for."""


class Lanes:
    """b lanes that see two numbers. `first_lane` 0 does `what(steps)` in each reset and step."""

    def __init__(self, what: Callable[[int], Any], b: int, first_lane: int) -> None:
        self._b, self._steps = b, 0
        self._do = nothing if first_lane else what

    def reset(self, seeds: Any) -> Step:
        return self._answer(np.ones(self._b, np.bool_))

    def step(self, action: Any) -> Step:
        self._steps += 1
        return self._answer(np.zeros(self._b, np.bool_))

    def _answer(self, first: Any) -> Step:
        self._do(self._steps)
        obs = np.full((self._b, 2), float("jax" in sys.modules), np.float32)
        numbers, no = np.zeros(self._b, np.float32), np.zeros(self._b, np.bool_)
        lengths = np.full(self._b, self._steps, np.int32)
        return Step(obs, numbers, no, no, first, numbers, lengths)

    def close(self) -> None:
        pass


def world(what: Callable[[int], Any] = nothing) -> HostWorld:
    return HostWorld(SPEC, partial(Lanes, what))


def make(config: None, spec: EnvSpec) -> Any:
    """An algorithm whose only parameter is the mean of what it saw."""
    import jax.numpy as jnp  # not where only environments run

    from rondel.types import Algorithm, Memory

    def prepare(weights: Any, tr: Any) -> Any:
        return {"obs": tr.obs[:-1].swapaxes(0, 1)}, ()

    def gradient(variables: Any, batch: Any, key: Any) -> Any:
        rows = batch["obs"].shape[0]
        return batch["obs"].mean(), jnp.float32(1), jnp.zeros(rows), {"loss": jnp.float32(0)}

    memory = Memory(
        init=lambda like, shards: {"obs": jnp.zeros(like["obs"].shape)},
        add=lambda memory, items, key: items,
        draw=lambda memory, key, j: (memory, ()),
        rank=lambda memory, ticket, feedback: memory,
        draws=1,
    )
    return Algorithm(
        init=lambda key: jnp.float32(0),
        acting=lambda state: state,
        learning=lambda state: state,
        gradient=gradient,
        update=lambda state, grads: grads,
        act=lambda weights, carry, obs, keys, explore: (
            jnp.zeros(obs.shape[0], jnp.int32),
            carry,
            (),
        ),
        prepare=prepare,
        memory=memory,
        rollout=2,
        max_lag=None,
    )


def task(what: Callable[[int], Any] = nothing, **changes: Any) -> Any:
    """A task, with an algorithm of which some functions are others."""
    from rondel.execution.stages.task import Task

    return Task(make(None, SPEC)._replace(**changes), world(what), 0, LANES, 2)


def run(backend: Any, plan: str, task: Any, steps: int = 400) -> float:
    """A few rounds on a backend -> the learner's state."""
    from rondel.execution.loop.ring import Ring
    from rondel.execution.loop.sync_loop import Limits, run_rounds
    from rondel.plan.parser import parse

    ring = Ring(task, parse(plan), backend)
    try:
        for _ in run_rounds(ring, Limits(steps)):
            pass
        return float(ring.learner())
    finally:
        ring.close()
