"""MountainCarContinuous-v0: the mountain car with a continuous pedal, and a cost for fuel."""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np

from rondel.envs.jax.classic.mountain_car import (
    LEFT,
    RIGHT,
    SPEED_LIMIT,
    Physics,
    arrived,
    draw,
    observe,
    roll,
    start,
)
from rondel.envs.jax.episodic import episodic
from rondel.spaces import Box
from rondel.types import Array, Env, EnvSpec

POWER = 0.0015
GOAL = 0.45


def make() -> Env:
    """One pedal in -1..1; each step costs a tenth of its square; +100 at the goal; 999 steps."""
    low, high = np.array([[LEFT, -SPEED_LIMIT], [RIGHT, SPEED_LIMIT]], np.float32)
    pedal = np.ones(1, np.float32)
    spec = EnvSpec("jax:MountainCarContinuous-v0", Box(low, high), Box(-pedal, pedal))
    shown = partial(draw, goal=GOAL)
    return episodic(spec, start, move, observe, time_limit=999, draw=shown)


def move(physics: Physics, action: Array) -> tuple[Physics, Array, Array]:
    pedal = action[:, 0]
    physics = roll(physics, pedal * POWER)
    there = arrived(physics, GOAL)
    return physics, jnp.where(there, 100.0, 0.0) - 0.1 * pedal**2, there
