"""Tic-tac-toe: three in a row on a board of 3 x 3.

A player's stones are the bits of one number: cell i, row i // 3 and column i % 3, is bit i.
"""

from __future__ import annotations

from functools import cache, partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from rondel.envs.jax.games.drawing import draw
from rondel.envs.jax.games.match import environment
from rondel.envs.jax.games.opponents import Opponent
from rondel.ops import random
from rondel.spaces import MASK, Box, Discrete, MultiBinary
from rondel.types import Array, Env, EnvSpec, Game, Tree

LINES = (0b111, 0b111000, 0b111000000, 0b1001001, 0b10010010, 0b100100100, 0b100010001, 0b1010100)
FULL = 0b111111111
_CELLS = np.arange(9, dtype=np.uint32)


class Board(NamedTuple):
    mine: Array  # [b] uint32: of the player to move
    theirs: Array  # [b] uint32


def make(opponent: str | None = None, simulations: int | None = None) -> Env:
    """Nine actions, the cells; +1 for a win, -1 for a loss, 0 for a draw.

    Without an `opponent` one policy moves for both players; else it is random, perfect or mcts,
    which runs `simulations` per move.
    """
    bound = np.ones((3, 3, 2), np.int8)
    seen = {"board": Box(0 * bound, bound, "int8"), MASK: MultiBinary((9,))}
    spec = EnvSpec("jax:TicTacToe-v0", seen, Discrete(9))
    drawn = partial(draw, in_a_row=3)
    return environment(spec, GAME, opponent, simulations, {"perfect": perfect}, drawn)


def start(lanes: int) -> Board:
    return Board(jnp.zeros(lanes, jnp.uint32), jnp.zeros(lanes, jnp.uint32))


def step(board: Board, action: Array) -> tuple[Board, Array, Array]:
    stone = jnp.uint32(1) << action.astype(jnp.uint32)
    taken = board.mine | board.theirs
    legal = (taken & stone) == 0
    mine = board.mine | stone
    lines = np.array([LINES], np.uint32)
    won = ((mine[:, None] & lines) == lines).any(-1)
    reward = jnp.where(legal, won.astype(jnp.float32), -1.0)
    return Board(board.theirs, mine), reward, ~legal | won | ((taken | stone) == FULL)


def observe(board: Board) -> Tree:
    """Mine and theirs in the last axis of [b, 3, 3, 2]."""
    cells = [(stones[:, None] >> _CELLS[None]) & 1 for stones in board]
    legal = (cells[0] | cells[1]) == 0
    seen = jnp.stack(cells, -1).reshape(-1, 3, 3, 2)
    return {"board": seen.astype(jnp.int8), MASK: legal.astype(jnp.int8)}


def state(obs: Tree) -> Board:
    cells = obs["board"].reshape(-1, 9, 2).astype(jnp.uint32)
    mine, theirs = jnp.moveaxis((cells << _CELLS[None, :, None]).sum(1, dtype=jnp.uint32), -1, 0)
    return Board(mine, theirs)


GAME = Game(start, step, observe, state)


def perfect() -> Opponent:
    """An opponent that makes any of the best moves."""
    table = _best_moves()

    def reply(board: Board, keys: Array) -> Array:
        best = jnp.asarray(table)[board.mine, board.theirs]
        chosen = (best[:, None] >> _CELLS[None].astype(np.uint16)) & 1
        return jnp.argmax(chosen * (1.0 + random.uniform(keys, 9)), -1)

    return reply


@cache
def _best_moves() -> np.ndarray:
    """The best moves, as bits, by the stones of both players [512, 512], from a full search."""
    table = np.zeros((FULL + 1, FULL + 1), np.uint16)

    @cache
    def value(mine: int, theirs: int) -> int:
        if any(theirs & line == line for line in LINES):
            return -1
        moves = [cell for cell in range(9) if not (mine | theirs) >> cell & 1]
        worth = {cell: -value(theirs, mine | 1 << cell) for cell in moves}
        best = max(worth.values(), default=0)
        table[mine, theirs] = sum(1 << cell for cell in moves if worth[cell] == best)
        return best

    value(0, 0)
    return table
