"""Recurrent networks: cells (GRU, LSTM), a cell over time, and action values behind a cell.

Shapes: b lanes, T rows of time.

Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, arXiv 1406.1078; Hochreiter
and Schmidhuber, Long Short-Term Memory, Neural Computation 9(8), 1997.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from rondel.errors import one_of
from rondel.nets.mlp import layers
from rondel.ops.select import select
from rondel.types import Array, Network, Tree


class Cell(NamedTuple):
    """A recurrent cell."""

    init: Callable[[Array], Tree]  # (key) -> params
    start: Callable[[int], Tree]  # (b) -> carry [b, ...], at an episode's beginning
    step: Callable[[Tree, Tree, Array], tuple[Tree, Array]]  # (params, carry, x) -> (carry, y)
    size: int  # width of y


def make_cell(kind: str, inputs: int, size: int) -> Cell:
    """The cell of that name, for inputs of that width."""
    one_of(("none", *CELLS), memory=kind)
    return CELLS[kind](inputs, size)


def gru(inputs: int, size: int) -> Cell:
    """h' = (1 - z) n + z h, where z and r are gates and n = tanh(W x + r (U h + c))."""

    def init(key: Array) -> Tree:
        return _gates(key, inputs, size, 3)

    def step(params: Tree, h: Array, x: Array) -> tuple[Array, Array]:
        from_x, from_h = _gate_inputs(params, h, x)
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
        from_x, from_h = _gate_inputs(params, h, x)
        write, forget, new, read = jnp.split(from_x + from_h, 4, -1)
        # + 1: an untrained cell should not forget
        c = jax.nn.sigmoid(forget + 1.0) * c + jax.nn.sigmoid(write) * jnp.tanh(new)
        h = jax.nn.sigmoid(read) * jnp.tanh(c)
        return (h, c), h

    return Cell(init, start, step, size)


CELLS = {"gru": gru, "lstm": lstm}


def _gates(key: Array, inputs: int, size: int, n: int) -> Tree:
    """Weights of n gates, orthogonal each: "x" for inputs, "h" for the last output."""
    parts = [layers(k, (inputs + size, size), 1.0)[0]["w"] for k in jax.random.split(key, n)]
    w = jnp.concatenate(parts, -1)
    bias = jnp.zeros(n * size)
    return {"x": {"w": w[:inputs], "b": bias}, "h": {"w": w[inputs:], "b": bias}}


def _gate_inputs(params: Tree, h: Array, x: Array) -> tuple[Array, Array]:
    sums = (v @ params[name]["w"] for name, v in (("x", x), ("h", h)))
    from_x, from_h = (
        y + jnp.broadcast_to(params[name]["b"], y.shape)
        for name, y in zip(("x", "h"), sums, strict=True)
    )
    return from_x, from_h


def unroll_cell(
    step: Callable[[Tree, Tree], tuple[Tree, Tree]],
    start: Tree,
    carry: Tree,
    inputs: Tree,
    first: Array,
) -> tuple[Tree, Tree]:
    """Repeat `carry, y = step(carry, x)` over time: (ys [T, b, ...], carries before each step).

    `inputs` are [T, b, ...], `carry` [b, ...] is that before row 0. Where `first` [T, b] is True an
    episode begins, with the carry `start` [b, ...].
    """

    def one(carry: Tree, row: tuple[Tree, Array]) -> tuple[Tree, tuple[Tree, Tree]]:
        x, begins = row
        carry = select(begins, start, carry)
        after, y = step(carry, x)
        return after, (y, carry)

    _, (ys, carries) = lax.scan(one, carry, (inputs, first))
    return ys, carries


class Recalled(NamedTuple):
    """What is remembered of an episode: the cell's state and the last action.

    The action tells more of what happened than the observation where actions are random at times.
    """

    cell: Tree  # [b, ...]
    action: Array  # [b] int32: the last one; -1 at the beginning


class RecurrentValues(NamedTuple):
    """Action values [..., actions], or atoms of their distributions [..., actions, atoms]."""

    init: Callable[[Array], Tree]  # (key) -> params
    start: Callable[[int], Recalled]  # (b) -> at an episode's beginning
    # (params, recalled, obs [b, ...]) -> (the cell's memory, values)
    step: Callable[[Tree, Recalled, Tree], tuple[Tree, Array]]
    # (params, recalled before row 0, obs [T, b, ...], action [T, b], first [T, b]) ->
    # (values [T, b, ...], recalled before each row)
    unroll: Callable[[Tree, Recalled, Tree, Array, Array], tuple[Array, Recalled]]


def recurrent_values(
    torso: Network,
    width: int,
    actions: int,
    cell: Callable[[int], Cell],
    head: Callable[[Network, int], Network],
) -> RecurrentValues:
    """A torso, a cell behind it, then a head: `cell(inputs)` and `head(torso, width)` make them.

    >>> cell = partial(make_cell, "lstm", size=64)
    >>> head = partial(dueling_head, actions=2)
    >>> network = recurrent_values(*make_torso("auto", spec.observation), 2, cell, head)
    """
    memory = cell(width + actions)
    values = head(Network(lambda key: (), lambda params, y: y), memory.size)

    def init(key: Array) -> Tree:
        k_torso, k_memory, k_values = jax.random.split(key, 3)
        parts = {"torso": torso.init(k_torso), "memory": memory.init(k_memory)}
        return parts | {"values": values.init(k_values)}

    def start(b: int) -> Recalled:
        return Recalled(memory.start(b), jnp.full(b, -1, jnp.int32))

    def remember(params: Tree, recalled: Recalled, seen: Array) -> tuple[Tree, Array]:
        seen = jnp.concatenate([seen, jax.nn.one_hot(recalled.action, actions)], -1)
        return memory.step(params["memory"], recalled.cell, seen)

    def step(params: Tree, recalled: Recalled, obs: Tree) -> tuple[Tree, Array]:
        cell, y = remember(params, recalled, torso.apply(params["torso"], obs))
        return cell, values.apply(params["values"], y)

    def unroll(
        params: Tree, recalled: Recalled, obs: Tree, action: Array, first: Array
    ) -> tuple[Array, Recalled]:
        def one(recalled: Recalled, row: tuple[Array, Array]) -> tuple[Recalled, Array]:
            seen, action = row
            cell, y = remember(params, recalled, seen)
            return Recalled(cell, action), y

        seen = torso.apply(params["torso"], obs)  # all rows at once; only memory needs an order
        ys, before = unroll_cell(one, start(first.shape[1]), recalled, (seen, action), first)
        out = values.apply(params["values"], ys.reshape(-1, memory.size))
        return out.reshape(*first.shape, *out.shape[1:]), before

    return RecurrentValues(init, start, step, unroll)
