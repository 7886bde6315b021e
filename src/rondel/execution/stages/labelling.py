"""The stage label: what a batch gets before its gradient is made."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from rondel.execution.hostenv.seeds import Purpose
from rondel.execution.stages.peers import WHOLE, Part
from rondel.execution.stages.task import Task, map_blocks, stage_boundary
from rondel.ops.random import per_lane, purpose_key
from rondel.types import Array, Tree

ROWS = 16  # of a batch, that are labelled at a time; all of them where that doesn't divide them


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
