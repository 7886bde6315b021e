"""The stages before round 0: their first states, and the shapes of what they will make."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from rondel.execution.hostenv.seeds import Purpose
from rondel.execution.stages import acting
from rondel.execution.stages.acting import Lanes, Outcome, Row
from rondel.execution.stages.task import Task, keeps_state
from rondel.execution.telemetry.timing import ready
from rondel.ops.random import per_lane, purpose_key
from rondel.spaces import zeros
from rondel.types import Array, Env, Step, Tree


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


def first_lanes(task: Task, lane: Array) -> Lanes:
    """The policy's lanes before round 0: new carries, and a tail of invalid rows."""
    shape = (lane.shape[0], task.algorithm.overlap)
    like = row_like(task, lane)
    tail = jax.tree.map(lambda x: jnp.zeros((*shape, *x.shape[1:]), x.dtype), like)
    return Lanes(task.algorithm.carry(lane), tail)


def episode_starter(task: Task) -> Callable[..., tuple[Tree, Step]]:
    """`first_step` of a task, as a program if the environment can be in one."""
    start = partial(acting.first_step, task)
    return jax.jit(start) if keeps_state(task.env) else start


def row_like(task: Task, lane: Array) -> Row:
    """Shapes and types of the row that is recorded of a step."""
    task = task._replace(block=lane.shape[0])

    def one_row(weights: Tree, step: Step, lane: Array) -> Row:
        action, _, extras, carry = acting.compute_action(
            task.algorithm,
            weights,
            task.algorithm.carry(lane),
            step.obs,
            step.first,
            per_lane(purpose_key(0, Purpose.ACT), lane),
            lane,
            acting.start_round(task, 0, weights, 0, lane),
        )
        return acting.row_of(step, action, extras, carry, step)

    return jax.eval_shape(one_row, weights_like(task), step_like(task, lane.shape[0]), lane)


def step_like(task: Task, lanes: int) -> Step:
    """Shapes and types of a step of the environment in `lanes` lanes."""
    if isinstance(task.env, Env) and task.env.pure:
        keys = jax.eval_shape(lambda: per_lane(purpose_key(0, Purpose.ENV), jnp.arange(lanes)))
        return jax.eval_shape(task.env.init, keys)[1]
    obs = zeros(task.env.spec.observation, lanes)

    def like() -> Step:
        real, flag = jnp.zeros(lanes), jnp.zeros(lanes, bool)
        length = jnp.zeros(lanes, jnp.int32)
        return Step(jax.tree.map(jnp.asarray, obs), real, flag, flag, flag, real, length)

    return jax.eval_shape(like)


def weights_like(task: Task) -> Tree:
    """Shapes and types of the weights."""
    algorithm = task.algorithm
    return jax.eval_shape(lambda: algorithm.acting(algorithm.init(purpose_key(0, Purpose.INIT))))


def outcome_like(task: Task) -> Outcome:
    """Shapes and types of a round's outcome, in all lanes."""

    def like() -> Outcome:
        real = jnp.zeros((task.lanes, task.algorithm.rollout))
        return Outcome(real > 0, real, real.astype(jnp.int32), real > 0)

    return jax.eval_shape(like)


def produced_like(task: Task, lanes: int) -> tuple[Tree, Tree]:
    """Shapes and types of a round's items and summary [lanes, ...]."""
    task = task._replace(block=lanes)  # a shard of memory may have less than a block

    def one_round(weights: Tree, step: Step, lane: Array) -> tuple[Tree, Tree]:
        like = row_like(task, lane)
        rows = jax.tree.map(lambda x: jnp.zeros((task.algorithm.rollout, *x.shape), x.dtype), like)
        return acting.compute_items(task, weights, first_lanes(task, lane).tail, rows, step, lane)[
            :2
        ]

    lane = jax.eval_shape(lambda: jnp.arange(lanes, dtype=jnp.int32))
    return jax.eval_shape(one_round, weights_like(task), step_like(task, lanes), lane)
