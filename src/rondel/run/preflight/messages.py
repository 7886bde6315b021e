"""What passes between the copies of a plan in a round, worked out from shapes alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rondel.execution.hostenv.partition import phases, route
from rondel.execution.stages import acting, learning
from rondel.execution.stages.task import Task, without_keys
from rondel.execution.workers.lane_trees import take_share
from rondel.plan.plan import Plan, has_separate_envs
from rondel.run.setup.memory_shapes import Shard
from rondel.types import Tree


@dataclasses.dataclass(frozen=True)
class Leaf:
    """An array of a tree."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclasses.dataclass(frozen=True)
class Message:
    """What copies of one stage hand to copies of another: a message is one tree for one copy."""

    maker: str
    taker: str
    what: str
    leaves: tuple[Leaf, ...]  # of a message
    message_bytes: int
    messages: int  # in a round
    round_bytes: int


def own_rounds(plan: Plan) -> bool:
    """Does each copy of a free run make gradients of what it did alone? See `execution.free`."""
    return plan.free and plan.piece_of("gradient") == plan.piece_of("policy")


def messages_of(
    task: Task, plan: Plan, shard: Shard, to_driver: bool, meshed: bool, spreads: bool
) -> Iterator[Message]:
    """What leaves a copy in a round, in the ring's order.

    It is `execution.round` that hands it over, and inside one program on several devices `mesh` or
    `spread`.
    """
    policy, memory, gradient, update = (
        plan.piece_of(stage) for stage in ("policy", "memory", "gradient", "update")
    )
    algorithm, draws = task.algorithm, task.algorithm.memory.draws
    own = own_rounds(plan)  # then a round is one copy's
    actors, teachers = (1, 1) if own else (policy.copies, gradient.copies)
    mine = task.lanes // policy.copies

    if has_separate_envs(plan):
        every = [
            group
            for copy in range(actors)
            for phase in phases(plan, task.lanes, task.block, copy)
            for group in phase
        ]
        steps, lanes = len(every) * algorithm.rollout, every[0].lanes
        row = acting.row_like(task, lane_like(lanes))
        seen = steps + len(every) * algorithm.fresh  # a new episode's first step is no answer
        yield _handover("env", "policy", "step", acting.step_like(task, lanes), seen)
        yield _handover("policy", "env", "action", row.action, steps)

    to_update = actors if policy != update else policy.copies - 1
    to_update = 0 if spreads else to_update
    if to_update:
        items, told = acting.produced_like(task._replace(block=mine), mine)
        if policy != memory:
            dealt = max(policy.copies, memory.copies)
            yield _handover("policy", "memory", "items", items, dealt)
        yield _handover("policy", "update", "summary", told, to_update * update.copies)

    made = _learning_like(task, plan, shard)
    contribution = made.contribution
    if spreads:
        between = draws * gradient.copies * (gradient.copies - 1)
        yield _handover("gradient", "update", "contribution", contribution, between)
        if jax.tree.leaves(made.feedback):
            yield _handover("gradient", "memory", "feedback", made.feedback, between)
        return
    yield from _batches(task, plan, shard, made)
    if gradient != update:
        yield _handover("update", "gradient", "variables", made.variables, draws * teachers)
        yield _handover("gradient", "update", "contribution", contribution, draws * teachers)
    elif gradient.copies > 1:
        between = gradient.copies * (gradient.copies - 1)
        yield _handover("gradient", "update", "contribution", contribution, draws * between)
    if to_update and not meshed:
        yield _handover("update", "policy", "weights", acting.weights_like(task), to_update)

    if to_driver:
        outcome = acting.outcome_like(task._replace(lanes=mine))
        at_once = memory == gradient == update and update.copies == 1
        yield _handover("policy", "driver", "outcome", outcome, actors)
        metrics = contribution.metrics
        yield _handover("update", "driver", "metrics", metrics, 1 if at_once else draws)


class _Made(NamedTuple):
    """What a copy of each stage that learns makes, as shapes and types."""

    variables: Tree
    labelled: Tree
    feedback: Tree
    contribution: learning.GradientContribution


def _batches(task: Task, plan: Plan, shard: Shard, made: _Made) -> Iterator[Message]:
    """What follows from a draw, on its way to the gradients and back to memory."""
    memory, label, gradient = (plan.piece_of(stage) for stage in ("memory", "label", "gradient"))
    draws, apart = task.algorithm.memory.draws, label != gradient
    if memory != label:
        dealt = draws * max(memory.copies, label.copies)
        taker = "label" if apart else "gradient"
        yield _handover("memory", taker, "batch", shard.batch, dealt)
    if task.algorithm.label and label != plan.piece_of("update"):
        times = draws if own_rounds(plan) else label.copies  # there a round is one copy's
        yield _handover("update", "label", "variables", made.variables, times)
    if apart:
        dealt = draws * max(label.copies, gradient.copies)
        yield _handover("label", "gradient", "labelled", made.labelled, dealt)
    if memory != gradient:
        dealt = draws * max(memory.copies, gradient.copies)
        yield _handover("gradient", "memory", "feedback", made.feedback, dealt)


def _learning_like(task: Task, plan: Plan, shard: Shard) -> _Made:
    algorithm, seed, zero = task.algorithm, np.uint32(0), np.int32(0)
    shards, labels, gradients = map(plan.copies, ("memory", "label", "gradient"))
    variables = jax.eval_shape(
        lambda: algorithm.learning(learning.init_learner(task, jnp.uint32(0)))
    )
    label = partial(learning.compute_label, task, part=(0, labels))
    batch = _share_of(shard.batch, shards, labels)
    labelled = jax.eval_shape(label, seed, variables, batch, zero, zero)
    gradient = partial(learning.compute_gradient, task, part=(0, gradients))
    batch = _share_of(labelled, labels, gradients)
    return _Made(variables, labelled, *jax.eval_shape(gradient, seed, variables, batch, zero, zero))


def _share_of(made: Tree, makers: int, takers: int) -> Tree:
    """What a taker gets where each maker makes this."""
    share, parts = route([made] * makers, takers)[0]
    return jax.eval_shape(lambda *parts: take_share(share, parts), *parts)


def _handover(maker: str, taker: str, what: str, tree: Tree, messages: int) -> Message:
    flat = jax.tree_util.tree_flatten_with_path(jax.eval_shape(without_keys, tree))[0]
    leaves = tuple(
        Leaf(
            jax.tree_util.keystr(path, simple=True, separator="/"),
            x.dtype.name,
            x.shape,
            x.size * x.dtype.itemsize,
        )
        for path, x in flat
    )
    size = sum(leaf.bytes for leaf in leaves)
    return Message(maker, taker, what, leaves, size, messages, size * messages)


def lane_like(lanes: int) -> Any:
    return jax.eval_shape(lambda: jnp.arange(lanes, dtype=jnp.int32))
