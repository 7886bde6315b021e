"""Cells that remember: gated recurrent units and long short-term memory.

Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, arXiv 1406.1078; Hochreiter
and Schmidhuber, Long Short-Term Memory, Neural Computation 9(8), 1997.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rondel.errors import RondelError
from rondel.nets.mlp import layers
from rondel.types import Array, Tree


class Cell(NamedTuple):
    """A step of memory."""

    init: Callable[[Array], Tree]  # (key) -> params
    start: Callable[[int], Tree]  # (b) -> carry [b, ...], at an episode's beginning
    step: Callable[[Tree, Tree, Array], tuple[Tree, Array]]  # (params, carry, x) -> (carry, y)
    size: int  # width of y


def make_cell(kind: str, inputs: int, size: int) -> Cell:
    """The cell of that name, for inputs of that width."""
    if kind not in CELLS:
        raise RondelError(f"There is no memory {kind!r}: {', '.join(CELLS)} and none would work.")
    return CELLS[kind](inputs, size)


def gru(inputs: int, size: int) -> Cell:
    """h' = (1 - z) n + z h, where z and r are gates and n = tanh(W x + r (U h + c))."""

    def init(key: Array) -> Tree:
        return _gates(key, inputs, size, 3)

    def step(params: Tree, h: Array, x: Array) -> tuple[Array, Array]:
        from_x, from_h = _both(params, h, x)
        reset_x, keep_x, new_x = jnp.split(from_x, 3, -1)
        reset_h, keep_h, new_h = jnp.split(from_h, 3, -1)
        keep = jax.nn.sigmoid(keep_x + keep_h)
        new = jnp.tanh(new_x + jax.nn.sigmoid(reset_x + reset_h) * new_h)
        h = (1 - keep) * new + keep * h
        return h, h

    return Cell(init, lambda b: jnp.zeros((b, size)), step, size)


def lstm(inputs: int, size: int) -> Cell:
    """c' = f c + i g and h' = o tanh(c'), where i, f and o are gates and g = tanh(W x + U h)."""

    def init(key: Array) -> Tree:
        return _gates(key, inputs, size, 4)

    def start(b: int) -> tuple[Array, Array]:
        return jnp.zeros((b, size)), jnp.zeros((b, size))

    def step(params: Tree, carry: tuple[Array, Array], x: Array) -> tuple[Tree, Array]:
        h, c = carry
        from_x, from_h = _both(params, h, x)
        write, forget, new, read = jnp.split(from_x + from_h, 4, -1)
        # a cell that knows nothing yet had better not forget: hence + 1
        c = jax.nn.sigmoid(forget + 1.0) * c + jax.nn.sigmoid(write) * jnp.tanh(new)
        h = jax.nn.sigmoid(read) * jnp.tanh(c)
        return (h, c), h

    return Cell(init, start, step, size)


CELLS = {"gru": gru, "lstm": lstm}


def _gates(key: Array, inputs: int, size: int, n: int) -> Tree:
    """Weights of n gates, orthogonal each: {"x": what is seen, "h": what is remembered}."""
    parts = [layers(k, (inputs + size, size), 1.0)[0]["w"] for k in jax.random.split(key, n)]
    w = jnp.concatenate(parts, -1)
    bias = jnp.zeros(n * size)
    return {"x": {"w": w[:inputs], "b": bias}, "h": {"w": w[inputs:], "b": bias}}


def _both(params: Tree, h: Array, x: Array) -> tuple[Array, Array]:
    sums = (v @ params[name]["w"] for name, v in (("x", x), ("h", h)))
    from_x, from_h = (
        y + jnp.broadcast_to(params[name]["b"], y.shape)
        for name, y in zip(("x", "h"), sums, strict=True)
    )
    return from_x, from_h
