"""The stages memory, gradient and update: from a round's items to new parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from rondel.execution.keys import Purpose, key_of
from rondel.execution.task import Task, boundary
from rondel.types import Array, Tree


def init(task: Task, seed: Array) -> Tree:
    """The learner's state before round 0."""
    return task.algorithm.init(key_of(seed, Purpose.INIT))


def add(task: Task, seed: Array, memory: Tree, items: Tree, round: Array) -> Tree:
    """Put a round's items [b, ...] into memory."""
    return task.algorithm.memory.add(memory, items, key_of(seed, Purpose.ADD, round))


def draw(task: Task, seed: Array, memory: Tree, round: Array, j: Array) -> tuple[Tree, Tree]:
    """The j-th batch of a round, and the ticket that `rank` wants back."""
    key = key_of(seed, Purpose.DRAW, round, j)
    return task.algorithm.memory.draw(memory, key, j)


def gradient(task: Task, seed: Array, variables: Tree, batch: Tree, round: Array, j: Array) -> Tree:
    """(grads, weight, feedback, metrics) of a batch."""
    key = key_of(seed, Purpose.GRADIENT, round, j)
    return task.algorithm.gradient(variables, batch, key)


def draws_of(task: Task, round: Array) -> Array:
    """How many draws a round makes: none while memory warms up.

    A traced trip count, because a `cond` around the draws makes XLA copy the whole memory.
    """
    memory = task.algorithm.memory
    return jnp.where(round < memory.warmup_rounds, 0, memory.draws)


def learn(
    task: Task, seed: Array, state: Tree, memory: Tree, round: Array
) -> tuple[Tree, Tree, dict[str, Array]]:
    """All draws of a round in one loop -> (state, memory, metrics: means over the draws)."""
    algorithm = task.algorithm

    def one(j: Array, loop: Tree) -> Tree:
        state, memory, sums = loop
        batch, ticket = draw(task, seed, memory, round, j)
        variables = algorithm.learning(state)
        made = gradient(task, seed, variables, boundary(batch), round, j)
        grads, _, feedback, metrics = boundary(made)
        memory = algorithm.memory.rank(memory, ticket, feedback)
        return algorithm.update(state, grads), memory, jax.tree.map(jnp.add, sums, metrics)

    def metrics_of(state: Tree, memory: Tree) -> dict[str, Array]:
        batch, _ = draw(task, seed, memory, round, jnp.int32(0))
        return gradient(task, seed, algorithm.learning(state), batch, round, jnp.int32(0))[3]

    like = jax.eval_shape(metrics_of, state, memory)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
    n = draws_of(task, round)
    state, memory, sums = lax.fori_loop(0, n, one, (state, memory, zeros))
    return state, memory, jax.tree.map(lambda x: x / jnp.maximum(n, 1), sums)
