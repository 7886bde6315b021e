"""The stages memory, gradient and update: from a round's items to new parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from rondel.execution.hostenv.seeds import Purpose
from rondel.execution.stages.labelling import compute_label
from rondel.execution.stages.peers import ALONE, WHOLE, GradientContribution, Part, Peers, average
from rondel.execution.stages.task import Task, stage_boundary
from rondel.ops.random import per_copy, purpose_key
from rondel.types import Array, Tree


def compute_add(
    task: Task, seed: Array, memory: Tree, items: Tree, round: Array, part: Part = WHOLE
) -> Tree:
    """Add a round's items [b, ...] to memory, or to one shard of it."""
    key = per_copy(purpose_key(seed, Purpose.ADD, round), *part)
    return task.algorithm.memory.add(memory, items, key)


def compute_draw(
    task: Task, seed: Array, memory: Tree, round: Array, j: Array, part: Part = WHOLE
) -> tuple[Tree, Tree]:
    """The j-th batch of a round, or a shard's part of it, and its ticket for `rank`."""
    key = per_copy(purpose_key(seed, Purpose.DRAW, round, j), *part)
    return task.algorithm.memory.draw(memory, key, j)


def compute_gradient(
    task: Task,
    seed: Array,
    variables: Tree,
    batch: Tree,
    round: Array,
    j: Array,
    part: Part = WHOLE,
) -> tuple[Tree, GradientContribution]:
    """(feedback, contribution to the update) of a batch, or of a part of it."""
    key = per_copy(purpose_key(seed, Purpose.GRADIENT, round, j), *part)
    grads, weight, feedback, metrics = task.algorithm.gradient(variables, batch, key)
    return feedback, GradientContribution(grads, weight, metrics)


def draw_count(task: Task, round: Array) -> Array:
    """How many draws a round makes: none while memory warms up.

    A traced trip count, because a `cond` around the draws makes XLA copy the whole memory.
    """
    memory = task.algorithm.memory
    return jnp.where(round < memory.warmup_rounds, 0, memory.draws)


def compute_learning(
    task: Task,
    seed: Array,
    state: Tree,
    memory: Tree,
    round: Array,
    others: Peers = ALONE,
    draws: Array | None = None,
) -> tuple[Tree, Tree, dict[str, Array]]:
    """All draws of a round in one loop -> (state, memory, metrics: means over the draws).

    `draws` is their number, if it does not follow from the round.
    """
    algorithm = task.algorithm
    known = stage_boundary(algorithm.learning(state)) if algorithm.label else ()

    def differentiate(state: Tree, memory: Tree, j: Array) -> Tree:
        batch, ticket = compute_draw(task, seed, memory, round, j, others.memory)
        mine = others.mine(stage_boundary(batch))
        mine = compute_label(task, seed, known, mine, round, j, others.gradient)
        variables = algorithm.learning(state)
        made = compute_gradient(task, seed, variables, mine, round, j, others.gradient)
        return ticket, stage_boundary(made)

    def one(j: Array, loop: Tree) -> Tree:
        state, memory, sums = loop
        ticket, (feedback, contribution) = differentiate(state, memory, j)
        contributions, feedback = others.exchange(contribution, feedback)
        memory = algorithm.memory.rank(memory, ticket, feedback)
        grads, metrics = average(contributions)
        return algorithm.update(state, grads), memory, jax.tree.map(jnp.add, sums, metrics)

    _, (_, like) = jax.eval_shape(differentiate, state, memory, jnp.int32(0))
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like.metrics)
    n = draw_count(task, round) if draws is None else draws
    state, memory, sums = lax.fori_loop(0, n, one, (state, memory, zeros))
    return state, memory, jax.tree.map(lambda x: x / jnp.maximum(n, 1), sums)
