"""What a copy of the memory stage keeps and gives, and how large a tree of arrays is."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from rondel.execution.backends import registry
from rondel.execution.stages import acting, learning
from rondel.execution.stages.memory_limit import check_fits_in_memory
from rondel.execution.stages.task import Task, without_keys
from rondel.types import Tree


class Shard(NamedTuple):
    """Shapes and types of what a copy of the memory stage keeps and gives."""

    memory: Tree
    batch: Tree  # [rows, ...]

    @property
    def rows(self) -> int:
        return int(jax.tree.leaves(self.batch)[0].shape[0])


def shard_like(task: Task, copies: int, on: str | None) -> Shard:
    """One of so many copies of the memory stage; refuses more than this machine has for them."""
    lanes, recipe, zero = task.lanes // copies, task.algorithm.memory, np.int32(0)
    items, _ = acting.produced_like(task._replace(block=lanes), lanes)
    memory = jax.eval_shape(lambda: recipe.init(items, copies))
    if not registry.find(on).remote:
        check_fits_in_memory(copies * bytes_of(memory))
    draw = partial(learning.compute_draw, task, part=(0, copies))
    batch, _ = jax.eval_shape(draw, np.uint32(0), memory, zero, zero)
    return Shard(memory, batch)


def bytes_of(tree: Tree) -> int:
    """How much memory a tree of arrays, or of shapes and types, takes."""
    leaves = jax.tree.leaves(jax.eval_shape(without_keys, tree))
    return sum(x.size * x.dtype.itemsize for x in leaves)
