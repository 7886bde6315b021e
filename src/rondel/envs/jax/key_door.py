"""KeyDoor-v0: a grid in which one bit must be remembered and nothing is won by chance.

Two rooms are separated by a wall with a door. In the first lie a red and a blue key; only the first
observation shows which one fits. The treasure behind the door gives reward 1, all else 0. Taking
where nothing lies, taking a second key, or opening without the right key ends the episode. Such
tasks are for learning from demonstrations; Gülçehre et al., Making Efficient Use of Demonstrations
to Solve Hard Exploration Problems, arXiv 1909.01387, has eight.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from rondel.envs.jax.drawing import BLUE, INK, PALE, RED, Canvas
from rondel.envs.jax.episodic import episodic
from rondel.ops.random import uniform
from rondel.spaces import Discrete, MultiDiscrete
from rondel.types import Array, Env, EnvSpec

ROWS, COLUMNS = 5, 8
KEYS, DOOR, TREASURE = 2, 4, 7  # their columns
DOOR_ROW = 2
UP, DOWN, LEFT, RIGHT, TAKE, OPEN = range(6)
HIDDEN = 2  # which key fits, when it is not shown
LIMIT = 40


class Place(NamedTuple):
    """All [b]."""

    row: Array  # int32, as those below
    column: Array
    red: Array  # the row of that key
    blue: Array
    treasure: Array  # its row
    fits: Array  # 0: the red key, 1: the blue one
    held: Array  # 0: none, 1: red, 2: blue
    opened: Array  # 0 or 1
    steps: Array


def make() -> Env:
    """Six actions: up, down, left, right, take, open; +1 for the treasure, within 40 steps.

    Observations: row, column, rows of the red and the blue key (5: taken), row of the treasure,
    the held key (0: none, 1: red, 2: blue), whether the door is open, and, in the first one only,
    which key fits (0: red, 1: blue; 2: not shown).
    """
    seen = MultiDiscrete((ROWS, COLUMNS, ROWS + 1, ROWS + 1, ROWS, 3, 2, 3))
    spec = EnvSpec("jax:KeyDoor-v0", seen, Discrete(6))
    return episodic(spec, start, move, observe, time_limit=LIMIT, draw=draw)


def start(keys: Array) -> Place:
    """Begin in the first column, with keys and treasure in random rows; the keys' rows differ."""

    def below(n: int, part: Array) -> Array:
        return jnp.minimum((part * n).astype(jnp.int32), n - 1)

    parts = uniform(keys, 5).T
    row, red, treasure = (below(ROWS, part) for part in parts[:3])
    blue = (red + 1 + below(ROWS - 1, parts[3])) % ROWS
    zero = jnp.zeros_like(row)
    return Place(row, zero, red, blue, treasure, below(2, parts[4]), zero, zero, zero)


def move(at: Place, action: Array) -> tuple[Place, Array, Array]:
    row = jnp.clip(at.row + (action == DOWN) - (action == UP), 0, ROWS - 1)
    column = jnp.clip(at.column + (action == RIGHT) - (action == LEFT), 0, COLUMNS - 1)
    in_wall = (column == DOOR) & ((row != DOOR_ROW) | (at.opened == 0))
    row, column = jnp.where(in_wall, at.row, row), jnp.where(in_wall, at.column, column)
    free = (at.column == KEYS) & (at.held == 0)
    held = jnp.where(free & (at.row == at.red), 1, jnp.where(free & (at.row == at.blue), 2, 0))
    takes_key = (action == TAKE) & (held > 0)
    wins = (action == TAKE) & (at.column == TREASURE) & (at.row == at.treasure)
    before_door = (at.row == DOOR_ROW) & (at.column == DOOR - 1) & (at.opened == 0)
    opens = (action == OPEN) & before_door & (at.held == at.fits + 1)
    fails = (action >= TAKE) & ~(takes_key | wins | opens)
    after = at._replace(
        row=row,
        column=column,
        held=jnp.where(takes_key, held, at.held),
        opened=at.opened | opens,
        steps=at.steps + 1,
    )
    return after, wins.astype(jnp.float32), wins | fails


def observe(at: Place) -> Array:
    red, blue = jnp.where(at.held == 1, ROWS, at.red), jnp.where(at.held == 2, ROWS, at.blue)
    fits = jnp.where(at.steps == 0, at.fits, HIDDEN)
    seen = [at.row, at.column, red, blue, at.treasure, at.held, at.opened, fits]
    return jnp.stack(seen, -1).astype(jnp.int32)


def draw(at: Place) -> Any:
    """Draw the rooms from above; the agent has the colour of its key, the treasure is a square."""
    canvas = Canvas(-0.5, COLUMNS - 0.5, 0.5 - ROWS, 0.5, width=320)
    for row in range(ROWS):
        if row != DOOR_ROW or not at.opened:
            _square(canvas, DOOR, row, 0.5, PALE if row == DOOR_ROW else INK)
    for key, colour, where in ((1, RED, at.red), (2, BLUE, at.blue)):
        if at.held != key:
            canvas.circle((KEYS, -float(where)), 0.15, colour)
    _square(canvas, TREASURE, at.treasure, 0.25, "#e69f00")
    canvas.circle((float(at.column), -float(at.row)), 0.35, (INK, RED, BLUE)[min(int(at.held), 2)])
    return canvas.picture()


def _square(canvas: Canvas, x: float, row: Any, half: float, colour: str) -> None:
    left, right, top, bottom = x - half, x + half, half - row, -half - row
    canvas.polygon([(left, top), (right, top), (right, bottom), (left, bottom)], colour)


def expert(obs: Any, fits: int | None = None) -> tuple[int, int]:
    """The best action for an observation, and which key fits; pass that on to the next call.

    >>> rondel.record(key_door.expert, "demonstrations.safetensors", "KeyDoor-v0", episodes=100)
    """
    row, column, red, blue, treasure, held, opened, shown = np.asarray(obs).tolist()
    fits = shown if fits is None else fits
    if held == 0:
        return _towards(row, column, (red, blue)[fits], KEYS, TAKE), fits
    if not opened:
        return _towards(row, column, DOOR_ROW, DOOR - 1, OPEN), fits
    return _towards(row, column, treasure, TREASURE, TAKE), fits


def _towards(row: int, column: int, to_row: int, to_column: int, there: int) -> int:
    """Move along the row, then along the column: so the door is on the way."""
    if column != to_column:
        return RIGHT if column < to_column else LEFT
    if row != to_row:
        return DOWN if row < to_row else UP
    return there
