"""The stages env and policy: from weights to a round's items.

All that lasts between rounds is lane-major [b, ...]; inside a round rows are time-major [T, b].
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from rondel.execution.hostenv.seeds import Purpose
from rondel.execution.stages.initial import first_step
from rondel.execution.stages.rows import Lanes, RolloutResult, Row, outcome_of, row_of
from rondel.execution.stages.task import Task, keeps_state, map_blocks, stage_boundary
from rondel.ops.random import per_step_and_lane, purpose_key
from rondel.ops.returns import swap_time
from rondel.ops.select import select
from rondel.types import Algorithm, Array, Step, Trajectory, Tree


def compute_action(
    algorithm: Algorithm,
    weights: Tree,
    carry: Tree,
    obs: Tree,
    first: Array,
    keys: Array,
    lane: Array,
    own: tuple[Tree, ...] = (),
    explore: bool = True,
) -> tuple[Array, Tree, Tree, Tree]:
    """One action per lane -> (action, next carry, extras, carry as it was before acting).

    An episode begins with a new carry: `first` says where. `own` is a result of `start_round`.
    """
    carry = select(first, algorithm.carry(lane), carry)
    action, after, extras = algorithm.act(weights, carry, obs, keys, explore, *own)
    return action, after, extras, carry


def act_keys(task: Task, seed: Array, round: Array, lane: Array) -> Array:
    """The keys of a round's actions, all at once because it is faster; plain numbers [T, b, 2]."""
    key = purpose_key(seed, Purpose.ACT, round)
    return jax.random.key_data(per_step_and_lane(key, task.algorithm.rollout, lane))


def start_round(
    task: Task, seed: int | Array, weights: Tree, round: int | Array, lane: Array
) -> tuple[Tree, ...]:
    """The lanes' own data for a round, such as noise: one tree [b, ...], or none."""
    start = task.algorithm.start
    if start is None:
        return ()

    def one_block(shared: tuple[Tree, Array], lane: Array) -> tuple[Tree, ...]:
        return (start(*shared, lane),)

    key = purpose_key(seed, Purpose.START, round)
    return map_blocks(one_block, task.block)((weights, key), lane)


_FIELDS = ("action", "reward", "terminated", "truncated", "valid", "extras")


def compute_rollout(
    task: Task,
    seed: Array,
    weights: Tree,
    env_state: Tree,
    step: Step,
    lanes: Lanes,
    lane: Array,
    round: Array,
) -> tuple[Tree, Step, Lanes, RolloutResult]:
    """A round of env and policy over a traceable environment: one scan per block of lanes.

    Lanes whose state is outside of JAX must step together: then one scan acts in blocks.
    """
    env_step = task.env.step  # type: ignore[union-attr]

    def play(weights: Tree, env_state: Tree, step: Step, lanes: Lanes, lane: Array) -> Tree:
        keys = act_keys(task, seed, round, lane)
        own = stage_boundary(start_round(task, seed, weights, round, lane))
        if task.algorithm.fresh:
            env_state, step = stage_boundary(first_step(task, seed, lane, round))

        def one_step(state: Tree, t: Array) -> Tree:
            env_state, step, carry = state
            action, after, extras, carry = compute_action_at(
                task, weights, carry, step.obs, step.first, keys, t, lane, own
            )
            env_state, next_step = env_step(env_state, action)
            row = row_of(step, action, extras, carry, next_step)
            return (env_state, next_step, after), (row, outcome_of(next_step))

        (env_state, step, carry), (rows, outcome) = lax.scan(
            one_step, (env_state, step, lanes.carry), jnp.arange(task.algorithm.rollout)
        )
        items, summary, tail = compute_items(task, weights, lanes.tail, rows, step, lane)
        made = RolloutResult(items, summary, swap_time(outcome))
        return env_state, step, Lanes(carry, tail), made

    in_blocks = map_blocks(play, task.block) if keeps_state(task.env) else play
    return in_blocks(weights, env_state, step, lanes, lane)


def compute_items(
    task: Task, weights: Tree, tail: Row, rows: Row, last: Step, lane: Array
) -> tuple[Tree, Tree, Row]:
    """Rows [T, b], block by block -> (items [b, ...], summary [b, ...], next tail [b, O, ...])."""

    def one_block(weights: Tree, tail: Row, rows: Row, last: Step, lane: Array) -> Tree:
        if task.algorithm.fresh:  # the round did not begin where the tail ended
            tail = tail._replace(valid=jnp.zeros_like(tail.valid))
        tail, rows = swap_time(tail), swap_time(rows)
        rows = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), tail, rows)

        def ends_with(xs: Array, x: Array) -> Array:
            return jnp.concatenate([xs, x[None]])

        trajectory = Trajectory(
            obs=jax.tree.map(ends_with, rows.obs, last.obs),
            first=ends_with(rows.first, last.first),
            carry=jax.tree.map(lambda x: x[0], rows.carry),
            lane=lane,
            **{f: getattr(rows, f) for f in _FIELDS},
        )
        items, summary = task.algorithm.prepare(weights, trajectory)
        tail = jax.tree.map(lambda x: x[x.shape[0] - task.algorithm.overlap :], rows)
        return items, summary, swap_time(tail)

    return map_blocks(one_block, task.block)(weights, tail, swap_time(rows), last, lane)


def compute_action_at(
    task: Task,
    weights: Tree,
    carry: Tree,
    obs: Tree,
    first: Array,
    keys: Array,
    t: Array,
    lane: Array,
    own: tuple[Tree, ...],
) -> tuple[Array, Tree, Tree, Tree]:
    """`compute_action` in step t for any number of lanes, block by block; keys [T, b, 2]."""

    def one_block(weights: Tree, *per_lane: Tree) -> Tree:
        carry, obs, first, keys, lane, own = per_lane
        keys = jax.random.wrap_key_data(keys, impl="threefry2x32")
        return compute_action(task.algorithm, weights, carry, obs, first, keys, lane, own)

    return map_blocks(one_block, task.block)(weights, carry, obs, first, keys[t], lane, own)
