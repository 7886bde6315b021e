"""How much memory a tree of arrays takes, and whether this machine has it."""

from __future__ import annotations

import os

import jax

from rondel.errors import RondelError
from rondel.execution.stages.task import without_keys
from rondel.types import Tree


def bytes_of(tree: Tree) -> int:
    """The size of a tree of arrays, or of shapes and types."""
    leaves = jax.tree.leaves(jax.eval_shape(without_keys, tree))
    return sum(x.size * x.dtype.itemsize for x in leaves)


def check_fits_in_memory(
    held: int, what: str = "Memory", work: str = "a smaller capacity, rollout or number of lanes"
) -> None:
    """Refuse what takes more bytes than this machine has."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if held > there:
        raise RondelError(
            f"{what} would take {held / 2**30:.1f} GiB, but this machine has "
            f"{there / 2**30:.1f}. Use {work}."
        )
