"""The first states of the learner and of the environments."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from threading import Lock
from typing import Any

import jax
import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from rondel.execution.hostenv.seeds import Purpose
from rondel.execution.stages.task import Task, keeps_state, map_blocks
from rondel.execution.telemetry.timing import ready
from rondel.ops.random import per_lane, purpose_key
from rondel.types import Array, Step, Tree


def init_learner(task: Task, seed: Array) -> Tree:
    """The learner's state before round 0."""
    return task.algorithm.init(purpose_key(seed, Purpose.INIT))


def learner_initialiser(task: Task) -> Callable[[np.uint32], Tree]:
    """`init` of a task as a program of the seed.

    LAPACK, which makes matrices orthogonal, rounds differently with other numbers of threads, which
    Ray and the environment may set: here it has one.
    """

    @cache
    def program() -> Any:
        program = partial(init_learner, task)
        if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
            return program
        return jax.jit(program).lower(np.uint32(0)).compile()  # which loads LAPACK

    def learner(seed: np.uint32) -> Tree:
        run = program()
        with _one_at_a_time, threadpool_limits(1, "blas"):
            return ready(run(seed))

    return learner


_one_at_a_time = Lock()  # the number of threads is the whole process's


def first_step(
    task: Task, seed: int | Array, lane: Array, again: int | Array = 0
) -> tuple[Tree, Step]:
    """The first step of each lane of a traceable environment; `again` changes the episodes."""
    keys = per_lane(purpose_key(seed, Purpose.ENV, again), lane)
    init = task.env.init  # type: ignore[union-attr]
    if not keeps_state(task.env):  # lanes outside of JAX start together
        return init(keys)
    return map_blocks(lambda _, keys: init(keys), task.block)((), keys)


def episode_starter(task: Task) -> Callable[..., tuple[Tree, Step]]:
    """`first_step` of a task, as a program if the environment can be in one."""
    start = partial(first_step, task)
    return jax.jit(start) if keeps_state(task.env) else start
