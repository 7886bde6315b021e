"""Shapes and types of what the stages make; the lanes before round 0 follow from them."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rondel.execution.hostenv.seeds import Purpose
from rondel.execution.stages.acting import compute_action, compute_items, start_round
from rondel.execution.stages.rows import Lanes, Outcome, Row, row_of
from rondel.execution.stages.task import Task
from rondel.ops.random import per_lane, purpose_key
from rondel.spaces import zeros
from rondel.types import Array, Env, Step, Tree


def first_lanes(task: Task, lane: Array) -> Lanes:
    """The policy's lanes before round 0: new carries, and a tail of invalid rows."""
    shape = (lane.shape[0], task.algorithm.overlap)
    like = row_like(task, lane)
    tail = jax.tree.map(lambda x: jnp.zeros((*shape, *x.shape[1:]), x.dtype), like)
    return Lanes(task.algorithm.carry(lane), tail)


def row_like(task: Task, lane: Array) -> Row:
    """Shapes and types of the row that is recorded of a step."""
    task = task._replace(block=lane.shape[0])

    def one_row(weights: Tree, step: Step, lane: Array) -> Row:
        action, _, extras, carry = compute_action(
            task.algorithm,
            weights,
            task.algorithm.carry(lane),
            step.obs,
            step.first,
            per_lane(purpose_key(0, Purpose.ACT), lane),
            lane,
            start_round(task, 0, weights, 0, lane),
        )
        return row_of(step, action, extras, carry, step)

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


def learner_like(task: Task) -> Tree:
    """Shapes and types of the learner's state."""
    return jax.eval_shape(lambda: task.algorithm.init(purpose_key(0, Purpose.INIT)))


def weights_like(task: Task) -> Tree:
    """Shapes and types of the weights."""
    return jax.eval_shape(task.algorithm.acting, learner_like(task))


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
        return compute_items(task, weights, first_lanes(task, lane).tail, rows, step, lane)[:2]

    lane = jax.eval_shape(lambda: jnp.arange(lanes, dtype=jnp.int32))
    return jax.eval_shape(one_round, weights_like(task), step_like(task, lanes), lane)
