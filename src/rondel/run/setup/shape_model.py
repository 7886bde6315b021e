"""Shapes and types of what the copies of a plan keep and send, from which bytes are counted."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rondel.execution.backends import registry
from rondel.execution.hostenv.partition import phases, route
from rondel.execution.hostenv.seeds import Purpose
from rondel.execution.stages import initial, learning
from rondel.execution.stages.acting import Row
from rondel.execution.stages.learning import GradientContribution
from rondel.execution.stages.rng import per_lane, purpose_key
from rondel.execution.stages.task import Task, bytes_of, check_fits_in_memory, keeps_state
from rondel.execution.workers.lane_trees import take_share
from rondel.plan.pieces import Piece
from rondel.plan.plan import Plan
from rondel.types import Tree


class ShapeModel:
    """What copies of a plan keep and send; each property is traced when it is first read."""

    def __init__(self, task: Task, plan: Plan, on: str | None) -> None:
        self.task, self.plan = task, plan
        self._limited = not registry.find(on).remote  # by the memory of this machine

    # what copies keep

    @cached_property
    def learner(self) -> Tree:
        return jax.eval_shape(partial(initial.init_learner, self.task), np.uint32(0))

    @cached_property
    def memory(self) -> Tree:
        """What one shard keeps; refused if this machine has too little for all of them."""
        recipe, shards = self.task.algorithm.memory, self.plan.copies("memory")
        items, _ = initial.produced_like(self.task, self.task.lanes // shards)
        memory = jax.eval_shape(lambda: recipe.init(items, shards))
        if self._limited:
            check_fits_in_memory(shards * bytes_of(memory))
        return memory

    def states(self, piece: Piece) -> dict[str, Tree]:
        """What a copy of a piece keeps, by stage; None where an environment does not say."""
        task, lanes = self.task, self.task.lanes // piece.copies
        kept: dict[str, Tree] = {}
        if "env" in piece.stages:
            kept["env"] = None
        if "env" in piece.stages and keeps_state(task.env):
            keys = jax.eval_shape(lambda: per_lane(purpose_key(0, Purpose.ENV), jnp.arange(lanes)))
            kept["env"] = jax.eval_shape(task.env.init, keys)[0]
        if "policy" in piece.stages:
            first = jax.eval_shape(partial(initial.first_lanes, task), _lane_like(lanes))
            kept["policy"] = (first, initial.step_like(task, lanes))
        if "memory" in piece.stages:
            kept["memory"] = self.memory
        if "update" in piece.stages:
            kept["update"] = self.learner
        return kept

    # what one message carries

    def message(self, what: str) -> Tree:
        """The tree of one message of a `Route`."""
        task, lanes = self.task, self._policy_lanes
        group = phases(self.plan, task.lanes, task.block, 0)[0][0].lanes
        match what:
            case "step":
                return initial.step_like(task, group)
            case "action":
                return initial.row_like(task, _lane_like(group)).action
            case "outcome":
                return initial.outcome_like(task._replace(lanes=lanes))
            case "summary":
                return self._produced[1]
            case "labelled":
                return self._labelled
            case "feedback":
                return self._gradient[0]
            case "contribution":
                return self._gradient[1]
            case "metrics":
                return self._gradient[1].metrics
            case _:
                return getattr(self, what)

    @cached_property
    def items(self) -> Tree:
        return self._produced[0]

    @cached_property
    def batch(self) -> Tree:
        """A shard's part of a draw [rows, ...]."""
        draw = partial(learning.compute_draw, self.task, part=(0, self.plan.copies("memory")))
        return jax.eval_shape(draw, np.uint32(0), self.memory, np.int32(0), np.int32(0))[0]

    @cached_property
    def variables(self) -> Tree:
        return jax.eval_shape(self.task.algorithm.learning, self.learner)

    @cached_property
    def weights(self) -> Tree:
        return jax.eval_shape(self.task.algorithm.acting, self.learner)

    # what these are made from

    @property
    def rows(self) -> int:
        """Rows of a shard's part of a draw."""
        return int(jax.tree.leaves(self.batch)[0].shape[0])

    @property
    def rollout_row(self) -> Row:
        """One step of all lanes of a policy copy."""
        return initial.row_like(self.task, _lane_like(self._policy_lanes))

    @property
    def _policy_lanes(self) -> int:
        return self.task.lanes // self.plan.copies("policy")

    @cached_property
    def _produced(self) -> tuple[Tree, Tree]:
        return initial.produced_like(self.task, self._policy_lanes)

    @cached_property
    def _gradient(self) -> tuple[Tree, GradientContribution]:
        made: tuple[Tree, GradientContribution]
        made = self._learn(learning.compute_gradient, "label", "gradient", self._labelled)
        return made

    @cached_property
    def _labelled(self) -> Tree:
        return self._learn(learning.compute_label, "memory", "label", self.batch)

    def _learn(self, compute: Any, maker: str, taker: str, batch: Tree) -> Tree:
        """What a copy of `taker` computes from its share of what copies of `maker` send it."""
        makers, takers = self.plan.copies(maker), self.plan.copies(taker)
        share, parts = route([batch] * makers, takers)[0]
        mine = jax.eval_shape(lambda *parts: take_share(share, parts), *parts)
        one, zero = partial(compute, self.task, part=(0, takers)), np.int32(0)
        return jax.eval_shape(one, np.uint32(0), self.variables, mine, zero, zero)


def _lane_like(lanes: int) -> Tree:
    return jax.eval_shape(lambda: jnp.arange(lanes, dtype=jnp.int32))
