"""MountainCar-v0: a weak car swings itself out of a valley; and MountainCarContinuous-v0.

Moore, "Efficient memory-based learning for robot control" (1990).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from rondel.envs.jax.drawing import BLUE, INK, RED, Canvas
from rondel.envs.jax.episodic import episodic
from rondel.ops.random import uniform
from rondel.spaces import Box, Discrete
from rondel.types import Array, Env, EnvSpec

FORCE, POWER, GRAVITY = 0.001, 0.0015, 0.0025  # power: of the continuous pedal
LEFT, RIGHT, GOAL, CONTINUOUS_GOAL = -1.2, 0.6, 0.5, 0.45
SPEED_LIMIT = 0.07


class Physics(NamedTuple):
    position: Array  # [b]
    speed: Array


def make() -> Env:
    """Three actions (left, none, right); -1 for each step until the goal or 200 steps are done."""
    spec = EnvSpec("jax:MountainCar-v0", _seen(), Discrete(3))
    return episodic(spec, start, move, observe, time_limit=200, draw=draw)


def make_continuous() -> Env:
    """One pedal in -1..1; each step costs a tenth of its square; +100 at the goal; 999 steps."""
    pedal = np.ones(1, np.float32)
    spec = EnvSpec("jax:MountainCarContinuous-v0", _seen(), Box(-pedal, pedal))
    shown = partial(draw, goal=CONTINUOUS_GOAL)
    return episodic(spec, start, move_continuous, observe, time_limit=999, draw=shown)


def _seen() -> Box:
    low, high = np.array([[LEFT, -SPEED_LIMIT], [RIGHT, SPEED_LIMIT]], np.float32)
    return Box(low, high)


def start(keys: Array) -> Physics:
    position = uniform(keys, 1, -0.6, -0.4)[:, 0]
    return Physics(position, jnp.zeros_like(position))


def move(physics: Physics, action: Array) -> tuple[Physics, Array, Array]:
    physics = roll(physics, (action - 1) * FORCE)
    return physics, jnp.full_like(physics.speed, -1.0), arrived(physics, GOAL)


def move_continuous(physics: Physics, action: Array) -> tuple[Physics, Array, Array]:
    pedal = action[:, 0]
    physics = roll(physics, pedal * POWER)
    there = arrived(physics, CONTINUOUS_GOAL)
    return physics, jnp.where(there, 100.0, 0.0) - 0.1 * pedal**2, there


def observe(physics: Physics) -> Array:
    return jnp.stack(physics, axis=-1)


def roll(physics: Physics, push: Array) -> Physics:
    """One step in the valley; the wall on the left stops the car."""
    speed = physics.speed + push - GRAVITY * jnp.cos(3 * physics.position)
    speed = jnp.clip(speed, -SPEED_LIMIT, SPEED_LIMIT)
    position = jnp.clip(physics.position + speed, LEFT, RIGHT)
    at_wall = (position == np.float32(LEFT)) & (speed < 0)
    return Physics(position, jnp.where(at_wall, 0.0, speed))


def arrived(physics: Physics, goal: float) -> Array:
    return (physics.position >= goal) & (physics.speed >= 0)


def draw(physics: Physics, goal: float = GOAL) -> Any:
    """Draw the car in its valley, and the flag."""
    canvas = Canvas(LEFT, RIGHT, -0.1, 1.2)
    canvas.line([(x, _height(x)) for x in np.linspace(LEFT, RIGHT, 100)], INK, 0.01)
    foot = _height(goal)
    canvas.line([(goal, foot), (goal, foot + 0.14)], INK, 0.008)
    canvas.polygon([(goal, foot + 0.14), (goal, foot + 0.08), (goal + 0.07, foot + 0.11)], RED)
    x = float(physics.position)
    canvas.circle((x, _height(x) + 0.045), 0.04, BLUE)
    return canvas.picture()


def _height(x: float) -> float:
    """The height of the road, whose slope pulls the car in `roll`."""
    return 0.45 * math.sin(3 * x) + 0.55
