"""Connect four: stones fall into 7 columns of 6 cells, and four in a row win.

A player's stones are the bits of two words: columns 0 to 3 in the first, 4 to 6 in the second, with
seven bits for each column, the lowest cell first. The seventh is always 0: rows don't run from the
top of one column into the bottom of the next, and a column that is full spills into it.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from rondel.envs.jax.games.drawing import draw
from rondel.envs.jax.games.match import environment
from rondel.spaces import MASK, Box, Discrete, MultiBinary
from rondel.types import Array, Env, EnvSpec, Game, Tree

ROWS, COLUMNS = 6, 7
_HEIGHT, _SPLIT = ROWS + 1, 4
_BITS = _HEIGHT * _SPLIT  # of the first word
_WORD = np.arange(COLUMNS) // _SPLIT  # of each column
_BOTTOM = (_HEIGHT * (np.arange(COLUMNS) % _SPLIT)).astype(np.uint32)  # its lowest bit
# cells as they are seen, the highest row first: [42]
_CELL_WORD = np.tile(_WORD, ROWS)
_CELL_BIT = (_BOTTOM[None] + np.arange(ROWS, dtype=np.uint32)[::-1, None]).reshape(-1)
_SPILLED = np.uint32(sum(1 << (_HEIGHT * c + ROWS) for c in range(_SPLIT)))


class Board(NamedTuple):
    mine: Array  # [b, 2] uint32: of the player to move
    theirs: Array  # [b, 2] uint32


def make(opponent: str | None = None, simulations: int | None = None) -> Env:
    """Seven actions, the columns; +1 for a win, -1 for a loss, 0 for a draw.

    Without an `opponent` one policy moves for both players; else it is random or mcts, which runs
    `simulations` per move.
    """
    bound = np.ones((ROWS, COLUMNS, 2), np.int8)
    seen = {"board": Box(0 * bound, bound, "int8"), MASK: MultiBinary((COLUMNS,))}
    spec = EnvSpec("jax:ConnectFour-v0", seen, Discrete(COLUMNS))
    return environment(spec, GAME, opponent, simulations, draw=partial(draw, in_a_row=4))


def start(lanes: int) -> Board:
    return Board(jnp.zeros((lanes, 2), jnp.uint32), jnp.zeros((lanes, 2), jnp.uint32))


def step(board: Board, action: Array) -> tuple[Board, Array, Array]:
    taken = board.mine | board.theirs
    bottom = jnp.uint32(1) << (_HEIGHT * (action % _SPLIT)).astype(jnp.uint32)
    here = (action // _SPLIT)[:, None] == np.array([[0, 1]])
    # adding carries the stone to the lowest free cell
    stone = (taken + jnp.where(here, bottom[:, None], 0)) & ~taken
    legal = ((stone & _SPILLED) == 0).all(-1)
    mine = board.mine | stone
    won = has_four(mine)
    full = (legal_moves(Board(mine, board.theirs)) == 0).all(-1)
    reward = jnp.where(legal, won.astype(jnp.float32), -1.0)
    return Board(board.theirs, mine), reward, ~legal | won | full


def has_four(stones: Array) -> Array:
    """Four in a row, [b]: stones that have a neighbour, then pairs that have a pair behind them."""
    low, high = stones[:, 0], stones[:, 1]
    found = jnp.zeros(low.shape, bool)
    for way in (1, _HEIGHT - 1, _HEIGHT, _HEIGHT + 1):  # up, down and up to the right, right
        next_low, next_high = _moved(low, high, way)
        pair_low, pair_high = low & next_low, high & next_high
        next_low, next_high = _moved(pair_low, pair_high, 2 * way)
        found = found | ((pair_low & next_low | pair_high & next_high) != 0)
    return found


def _moved(low: Array, high: Array, by: int) -> tuple[Array, Array]:
    """The 49 bits of both words, shifted down."""
    return (low >> by) | ((high << (_BITS - by)) & np.uint32((1 << _BITS) - 1)), high >> by


def legal_moves(board: Board) -> Array:
    """Flags [b, 7]: the highest cell of a column is free."""
    return _bits(board.mine | board.theirs, _WORD, _BOTTOM + np.uint32(ROWS - 1)) ^ 1


def _bits(stones: Array, word: np.ndarray, bit: np.ndarray) -> Array:
    """Some bits [b, n] of both words; a select is faster than a gather."""
    chosen = jnp.where(word[None] == 0, stones[:, :1], stones[:, 1:])
    return (chosen >> bit[None]) & 1


def observe(board: Board) -> Tree:
    """Mine and theirs in the last axis of [b, 6, 7, 2], the highest row first."""
    cells = [_bits(stones, _CELL_WORD, _CELL_BIT) for stones in board]
    seen = jnp.stack(cells, -1).reshape(-1, ROWS, COLUMNS, 2)
    return {"board": seen.astype(jnp.int8), MASK: legal_moves(board).astype(jnp.int8)}


def state(obs: Tree) -> Board:
    cells = obs["board"].reshape(-1, ROWS * COLUMNS, 2).astype(jnp.uint32)
    bits = cells << _CELL_BIT[None, :, None]
    words = [bits[:, word == _CELL_WORD].sum(1, dtype=jnp.uint32) for word in (0, 1)]
    mine, theirs = jnp.moveaxis(jnp.stack(words, 1), -1, 0)  # [b, word, player]
    return Board(mine, theirs)


GAME = Game(start, step, observe, state)
