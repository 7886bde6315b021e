"""A recurrent step over a stretch of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax

if TYPE_CHECKING:
    from rondel.types import Array, Tree


def unroll_cell(
    step: Callable[[Tree, Tree], tuple[Tree, Tree]],
    start: Tree,
    carry: Tree,
    inputs: Tree,
    first: Array,
) -> tuple[Tree, Tree]:
    """`carry, y = step(carry, x)` over time -> (ys [T, b, ...], carries before each step).

    `inputs` are [T, b, ...], `carry` [b, ...] is that before row 0. Where `first` [T, b] is True an
    episode begins, with the carry `start` [b, ...].
    """

    def one(carry: Tree, row: tuple[Tree, Array]) -> tuple[Tree, tuple[Tree, Tree]]:
        x, begins = row
        carry = jax.tree.map(lambda s, c: jnp.where(_beside(begins, c), s, c), start, carry)
        after, y = step(carry, x)
        return after, (y, carry)

    _, (ys, carries) = lax.scan(one, carry, (inputs, first))
    return ys, carries


def _beside(flags: Array, x: Array) -> Array:
    """Flags [b] with the axes of x [b, ...]."""
    return flags.reshape(-1, *[1] * (x.ndim - 1))
