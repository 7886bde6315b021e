"""The whole ring over a traceable environment as one XLA program.

The program runs a traced number of rounds and stops by itself at the round that reaches a limit,
so the numbers don't depend on how many rounds a call is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rondel.execution.stages.episode_stats import mean_return
from rondel.execution.stages.peers import ALONE, Peers
from rondel.execution.stages.round import Round, State, compute_round
from rondel.execution.stages.task import Task
from rondel.types import Array, Tree

_ROWS = 2**18  # reports of a call are held until it ends: about this many rows of outcomes


def max_rounds_per_call(task: Task) -> int:
    """The number of rounds that a call can report on."""
    return max(1, min(64, _ROWS // (task.lanes * task.algorithm.rollout)))


def fused_program(task: Task, others: Peers = ALONE) -> Any:
    """`compute_rounds(seed, state, memory, lane, round, rounds, steps_left, until_return)`.

    It runs at most `rounds`, no more than `max_rounds_per_call`, and returns (state, memory,
    reports [max_rounds_per_call, ...], how many rounds it ran).
    """

    def compute_rounds(
        seed: Array, state: State, memory: Tree, lane: Array, round: Array, *limits: Array
    ) -> tuple[State, Tree, Round, Array]:
        def one(state: State, memory: Tree, i: Array) -> tuple[State, Tree, Round]:
            return compute_round(task, seed, state, memory, lane, round + i, others)

        return repeat_rounds(one, state, memory, max_rounds_per_call(task), *limits)

    return compute_rounds


def repeat_rounds(
    one: Callable[[State, Tree, Array], tuple[State, Tree, Round]],
    state: State,
    memory: Tree,
    most: int,
    rounds: Array,
    steps_left: Array,
    until_return: Array,
    *,
    going: Any = np.bool_(True),  # noqa: B008 it is a plain value
) -> tuple[State, Tree, Round, Array]:
    """Run `one` round after the other: `rounds` of them, at most `most`, or until a limit.

    A metric that is infinite or NaN ends it, too. For several stacked rings everything has one more
    axis [N], and the first of those that are `going` that is over ends the call.
    """
    like = jax.eval_shape(one, state, memory, jnp.int32(0))[2]
    reports = jax.tree.map(lambda x: jnp.zeros((most, *x.shape), x.dtype), like)

    def goes_on(loop: Tree) -> Array:
        state, _, _, i, steps, finite = loop
        is_over = (steps >= steps_left) | (mean_return(state.recent) >= until_return)
        return (i < rounds) & ~(going & (is_over | ~finite)).any()

    def body(loop: Tree) -> Tree:
        state, memory, reports, i, steps, _ = loop
        state, memory, report = one(state, memory, i)
        finite = jnp.ones(going.shape, bool)
        for metric in report.metrics.values():
            finite &= jnp.isfinite(metric)
        reports = jax.tree.map(
            lambda all_, one: lax.dynamic_update_index_in_dim(all_, one, i, 0), reports, report
        )
        steps += report.outcome.valid.sum((-2, -1), dtype=jnp.int32)
        return state, memory, reports, i + 1, steps, finite

    steps, finite = jnp.zeros(going.shape, jnp.int32), jnp.ones(going.shape, bool)
    start = (state, memory, reports, jnp.int32(0), steps, finite)
    state, memory, reports, i, _, _ = lax.while_loop(goes_on, body, start)
    return state, memory, reports, i
