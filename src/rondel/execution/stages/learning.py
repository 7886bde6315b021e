"""The stages memory, label, gradient and update: from a round's items to new parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from rondel.execution.hostenv.seeds import Purpose
from rondel.execution.stages.task import Task, map_blocks, stage_boundary
from rondel.ops.random import per_copy, per_lane, purpose_key
from rondel.types import Array, Tree

Part: TypeAlias = tuple[Any, int]  # which of how many copies
WHOLE: Part = (0, 1)
ROWS = 16  # of a batch, that are labelled at a time; all of them where that doesn't divide them


class GradientContribution(NamedTuple):
    """What a copy of the gradient stage sends to update."""

    grads: Tree
    weight: Array  # (): how much these count among the copies'
    metrics: dict[str, Array]


class Peers(NamedTuple):
    """The exchange between copies that learn in one program; by default there are no others."""

    memory: Part = WHOLE  # which shard of it is here
    gradient: Part = WHOLE  # which copy of it this is
    mine: Callable[[Tree], Tree] = lambda batch: batch  # its rows of what was drawn here
    lanes: Callable[[Tree], Tree] = lambda tree: tree  # [b, ...] of all copies, as [B, ...]
    # own contribution, own feedback -> contributions of all, feedback on all that was drawn here
    exchange: Callable[
        [GradientContribution, Tree], tuple[Sequence[GradientContribution], Tree]
    ] = lambda contribution, feedback: ([contribution], feedback)


ALONE = Peers()


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


def compute_label(
    task: Task,
    seed: Array,
    variables: Tree,
    batch: Tree,
    round: Array,
    j: Array,
    part: Part = WHOLE,
) -> Tree:
    """A batch, or a part of it, with its labels; unchanged if the algorithm has no such stage.

    A row's key depends on its place in the whole batch, and rows are labelled in blocks, as lanes
    act: so labels do not depend on how a batch is split.
    """
    give = task.algorithm.label
    if give is None:
        return batch
    rows = jax.tree.leaves(batch)[0].shape[0]
    keys = per_lane(purpose_key(seed, Purpose.LABEL, round, j), part[0] * rows + jnp.arange(rows))
    size = ROWS if rows % ROWS == 0 else rows
    return stage_boundary(map_blocks(give, size)(variables, batch, keys))


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


def average_contributions(
    contributions: Sequence[GradientContribution],
) -> tuple[Tree, dict[str, Array]]:
    """The mean of several copies' gradients and metrics by weight, summed in copy order."""
    if len(contributions) == 1:
        return contributions[0].grads, contributions[0].metrics
    weights = [c.weight for c in contributions]
    total = jnp.maximum(sum(weights[1:], weights[0]), 1e-12)

    def mean(*xs: Array) -> Array:
        terms = [
            stage_boundary(x * (w / total).astype(x.dtype))
            for x, w in zip(xs, weights, strict=True)
        ]
        return sum(terms[1:], terms[0])

    pairs = [(c.grads, c.metrics) for c in contributions]
    means: tuple[Tree, dict[str, Array]] = jax.tree.map(mean, *pairs)
    return means


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

    def one(j: Array, loop: Tree) -> Tree:
        state, memory, sums = loop
        batch, ticket = compute_draw(task, seed, memory, round, j, others.memory)
        mine = others.mine(stage_boundary(batch))
        mine = compute_label(task, seed, known, mine, round, j, others.gradient)
        made = compute_gradient(
            task, seed, algorithm.learning(state), mine, round, j, others.gradient
        )
        feedback, contribution = stage_boundary(made)
        contributions, feedback = others.exchange(contribution, feedback)
        memory = algorithm.memory.rank(memory, ticket, feedback)
        grads, metrics = average_contributions(contributions)
        return algorithm.update(state, grads), memory, jax.tree.map(jnp.add, sums, metrics)

    def metrics_of(state: Tree, memory: Tree) -> dict[str, Array]:
        zero, variables = jnp.int32(0), algorithm.learning(state)
        batch, _ = compute_draw(task, seed, memory, round, zero)
        batch = compute_label(task, seed, variables, batch, round, zero)
        made = compute_gradient(task, seed, variables, batch, round, zero)
        return made[1].metrics

    like = jax.eval_shape(metrics_of, state, memory)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
    n = draw_count(task, round) if draws is None else draws
    state, memory, sums = lax.fori_loop(0, n, one, (state, memory, zeros))
    return state, memory, jax.tree.map(lambda x: x / jnp.maximum(n, 1), sums)
