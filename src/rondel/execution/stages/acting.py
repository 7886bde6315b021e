"""The stages env and policy: from weights to a round's items.

All that lasts between rounds is lane-major [b, ...]; inside a round rows are time-major [T, b].
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from rondel.execution.hostenv.seeds import Purpose
from rondel.execution.stages.task import Task, keeps_state, map_blocks, stage_boundary, time_major
from rondel.ops.random import per_lane, per_step_and_lane, purpose_key
from rondel.types import Algorithm, Array, Step, Trajectory, Tree


class Row(NamedTuple):
    """What is recorded of one step [b, ...]."""

    obs: Tree
    first: Array
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array
    extras: Tree
    carry: Tree  # before acting


class Lanes(NamedTuple):
    """What the policy stage keeps of its lanes between rounds."""

    carry: Tree  # [b, ...]
    tail: Row  # [b, O, ...]: the last rows of the round before


class Outcome(NamedTuple):
    """What a step reports besides the next observation [b, T]."""

    done: Array
    episode_return: Array
    episode_length: Array
    valid: Array


class RolloutResult(NamedTuple):
    """A round's experience [b, ...]."""

    items: Tree
    summary: Tree
    outcome: Outcome


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
    carry = where_lane(first, algorithm.carry(lane), carry)
    action, after, extras = algorithm.act(weights, carry, obs, keys, explore, *own)
    return action, after, extras, carry


def where_lane(condition: Array, yes: Tree, no: Tree) -> Tree:
    """Choose per lane; `condition` is [b]."""

    def choose(y: Array, n: Array) -> Array:
        return jnp.where(condition.reshape(-1, *[1] * (n.ndim - 1)), y, n)

    return jax.tree.map(choose, yes, no)


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


def row_of(before: Step, action: Array, extras: Tree, carry: Tree, after: Step) -> Row:
    """The row of the step from `before` to `after`."""
    return Row(
        before.obs,
        before.first,
        action,
        after.reward,
        after.terminated,
        after.truncated,
        ~after.first,
        extras,
        carry,
    )


def outcome_of(after: Step) -> Outcome:
    """What the driver needs of a step, to count it."""
    done = (after.terminated | after.truncated) & (after.episode_length > 0)
    return Outcome(done, after.episode_return, after.episode_length, ~after.first)


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
        return (
            env_state,
            step,
            Lanes(carry, tail),
            RolloutResult(items, summary, time_major(outcome)),
        )

    in_blocks = map_blocks(play, task.block) if keeps_state(task.env) else play
    return in_blocks(weights, env_state, step, lanes, lane)


def compute_items(
    task: Task, weights: Tree, tail: Row, rows: Row, last: Step, lane: Array
) -> tuple[Tree, Tree, Row]:
    """Rows [T, b], block by block -> (items [b, ...], summary [b, ...], next tail [b, O, ...])."""

    def one_block(weights: Tree, tail: Row, rows: Row, last: Step, lane: Array) -> Tree:
        if task.algorithm.fresh:  # the round did not begin where the tail ended
            tail = tail._replace(valid=jnp.zeros_like(tail.valid))
        tail, rows = time_major(tail), time_major(rows)
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
        return items, summary, time_major(tail)

    return map_blocks(one_block, task.block)(weights, tail, time_major(rows), last, lane)


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


def first_step(
    task: Task, seed: int | Array, lane: Array, again: int | Array = 0
) -> tuple[Tree, Step]:
    """The first step of each lane of a traceable environment; `again` changes the episodes."""
    keys = per_lane(purpose_key(seed, Purpose.ENV, again), lane)
    init = task.env.init  # type: ignore[union-attr]
    if not keeps_state(task.env):  # lanes outside of JAX start together
        return init(keys)
    return map_blocks(lambda _, keys: init(keys), task.block)((), keys)
