"""The stages memory, gradient and update: from a round's items to new parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from rondel.execution.keys import key_of, per_copy
from rondel.execution.seeds import Purpose
from rondel.execution.task import Task, boundary
from rondel.types import Array, Tree

Part: TypeAlias = tuple[Any, int]  # which of how many copies
WHOLE: Part = (0, 1)


class Contribution(NamedTuple):
    """What a copy of the gradient stage hands to update."""

    grads: Tree
    weight: Array  # (): how much these count among those of other copies
    metrics: dict[str, Array]


def alone(contribution: Contribution) -> Sequence[Contribution]:
    """There is no other copy."""
    return [contribution]


def init(task: Task, seed: Array) -> Tree:
    """The learner's state before round 0."""
    return task.algorithm.init(key_of(seed, Purpose.INIT))


def add(
    task: Task, seed: Array, memory: Tree, items: Tree, round: Array, part: Part = WHOLE
) -> Tree:
    """Put a round's items [b, ...] into memory, or into one shard of it."""
    key = per_copy(key_of(seed, Purpose.ADD, round), *part)
    return task.algorithm.memory.add(memory, items, key)


def draw(
    task: Task, seed: Array, memory: Tree, round: Array, j: Array, part: Part = WHOLE
) -> tuple[Tree, Tree]:
    """The j-th batch of a round, or a shard's part of it, and the ticket that `rank` wants back."""
    key = per_copy(key_of(seed, Purpose.DRAW, round, j), *part)
    return task.algorithm.memory.draw(memory, key, j)


def gradient(
    task: Task,
    seed: Array,
    variables: Tree,
    batch: Tree,
    round: Array,
    j: Array,
    part: Part = WHOLE,
) -> tuple[Tree, Contribution]:
    """(feedback, contribution to the update) of a batch, or of a part of it."""
    key = per_copy(key_of(seed, Purpose.GRADIENT, round, j), *part)
    grads, weight, feedback, metrics = task.algorithm.gradient(variables, batch, key)
    return feedback, Contribution(grads, weight, metrics)


def together(contributions: Sequence[Contribution]) -> tuple[Tree, dict[str, Array]]:
    """The mean of several copies' gradients and metrics by weight, summed in copy order."""
    if len(contributions) == 1:
        return contributions[0].grads, contributions[0].metrics
    weights = [c.weight for c in contributions]
    total = jnp.maximum(sum(weights[1:], weights[0]), 1e-12)

    def mean(*xs: Array) -> Array:
        terms = [
            boundary(x * (w / total).astype(x.dtype)) for x, w in zip(xs, weights, strict=True)
        ]
        return sum(terms[1:], terms[0])

    pairs = [(c.grads, c.metrics) for c in contributions]
    means: tuple[Tree, dict[str, Array]] = jax.tree.map(mean, *pairs)
    return means


def draws_of(task: Task, round: Array) -> Array:
    """How many draws a round makes: none while memory warms up.

    A traced trip count, because a `cond` around the draws makes XLA copy the whole memory.
    """
    memory = task.algorithm.memory
    return jnp.where(round < memory.warmup_rounds, 0, memory.draws)


def learn(
    task: Task,
    seed: Array,
    state: Tree,
    memory: Tree,
    round: Array,
    part: Part = WHOLE,
    exchange: Callable[[Contribution], Sequence[Contribution]] = alone,
) -> tuple[Tree, Tree, dict[str, Array]]:
    """All draws of a round in one loop -> (state, memory, metrics: means over the draws).

    `exchange` gives the contributions of all copies, in their order, for one's own.
    """
    algorithm = task.algorithm

    def one(j: Array, loop: Tree) -> Tree:
        state, memory, sums = loop
        batch, ticket = draw(task, seed, memory, round, j, part)
        variables = algorithm.learning(state)
        made = gradient(task, seed, variables, boundary(batch), round, j, part)
        feedback, contribution = boundary(made)
        memory = algorithm.memory.rank(memory, ticket, feedback)
        grads, metrics = together(exchange(contribution))
        return algorithm.update(state, grads), memory, jax.tree.map(jnp.add, sums, metrics)

    def metrics_of(state: Tree, memory: Tree) -> dict[str, Array]:
        batch, _ = draw(task, seed, memory, round, jnp.int32(0))
        made = gradient(task, seed, algorithm.learning(state), batch, round, jnp.int32(0))
        return made[1].metrics

    like = jax.eval_shape(metrics_of, state, memory)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
    n = draws_of(task, round)
    state, memory, sums = lax.fori_loop(0, n, one, (state, memory, zeros))
    return state, memory, jax.tree.map(lambda x: x / jnp.maximum(n, 1), sums)
