"""Pendulum-v1: swing a pendulum up and hold it there, with little torque."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from rondel.envs.jax.drawing import INK, PALE, RED, Canvas
from rondel.envs.jax.episodic import episodic
from rondel.ops.random import uniform
from rondel.spaces import Box
from rondel.types import Array, Env, EnvSpec

GRAVITY, MASS, LENGTH = 10.0, 1.0, 1.0
SECONDS = 0.05  # between steps
SPEED_LIMIT, TORQUE_LIMIT = 8.0, 2.0


class Physics(NamedTuple):
    angle: Array  # [b]: from upright, between -pi and pi
    speed: Array


def make() -> Env:
    """One torque in -2..2; a cost for angle, speed and torque; 200 steps, no termination."""
    high = np.array([1, 1, SPEED_LIMIT], np.float32)
    torque = np.array([TORQUE_LIMIT], np.float32)
    spec = EnvSpec("jax:Pendulum-v1", Box(-high, high), Box(-torque, torque))
    return episodic(spec, start, move, observe, time_limit=200, draw=draw)


def start(keys: Array) -> Physics:
    a, b = uniform(keys, 2, -1.0, 1.0).T
    return Physics(math.pi * a, b)


def move(physics: Physics, action: Array) -> tuple[Physics, Array, Array]:
    torque = action[:, 0]
    cost = physics.angle**2 + 0.1 * physics.speed**2 + 0.001 * torque**2
    fall = 3 * GRAVITY / (2 * LENGTH) * jnp.sin(physics.angle)
    speed = physics.speed + (fall + 3 / (MASS * LENGTH**2) * torque) * SECONDS
    speed = jnp.clip(speed, -SPEED_LIMIT, SPEED_LIMIT)
    angle = physics.angle + speed * SECONDS
    # kept near zero, so that float32 has as many digits late in an episode as early
    angle = angle - 2 * math.pi * jnp.round(angle / (2 * math.pi))
    return Physics(angle, speed), -cost, jnp.zeros_like(cost, bool)


def observe(physics: Physics) -> Array:
    return jnp.stack([jnp.cos(physics.angle), jnp.sin(physics.angle), physics.speed], axis=-1)


def draw(physics: Physics) -> Any:
    """Draw the rod on its hinge, and the circle that its tip can reach."""
    canvas = Canvas(-1.3, 1.3, -1.3, 1.3, width=320)
    canvas.circle((0.0, 0.0), 1.01 * LENGTH, PALE)
    canvas.circle((0.0, 0.0), 0.99 * LENGTH, "white")
    angle = float(physics.angle)
    canvas.rod((0.0, 0.0), (-LENGTH * math.sin(angle), LENGTH * math.cos(angle)), 0.16, RED)
    canvas.circle((0.0, 0.0), 0.04, INK)
    return canvas.picture()
