"""What each action is worth, by what is seen and what is remembered of the episode.

A torso, a cell that remembers behind it, then a head. The cell also sees the action before, which
tells more of what happened than the observation where actions are random at times.

Shapes: b lanes, T rows of time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rondel.nets.recurrent import Cell
from rondel.ops.unroll import unroll_cell
from rondel.types import Array, Network, Tree


class Recalled(NamedTuple):
    """What is known of an episode before its next observation."""

    cell: Tree  # [b, ...]
    action: Array  # [b] int32: the last one; -1 at the beginning


class RecurrentValues(NamedTuple):
    """Values of `actions` or of their atoms: [..., actions] or [..., actions, atoms]."""

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
    """`cell(inputs)` and `head(torso, width)` are made for what comes before them.

    >>> cell = partial(nets.cell, "lstm", size=64)
    >>> head = partial(nets.dueling, actions=2)
    >>> network = recurrent_values(*nets.torso("auto", spec.observation), 2, cell, head)
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
