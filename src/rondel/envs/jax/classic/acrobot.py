"""Acrobot-v1: swing the tip of two hanging links above a line by a torque between them.

Sutton, "Generalization in reinforcement learning: successful examples using sparse coarse coding"
(1996), with the equations of Sutton and Barto's book. Both links: mass 1, length 1, centre of
mass in the middle, moment of inertia 1.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from rondel.envs.jax.drawing import BLUE, INK, PALE, RED, Canvas
from rondel.envs.jax.episodic import episodic
from rondel.ops.random import uniform
from rondel.spaces import Box, Discrete
from rondel.types import Array, Env, EnvSpec

GRAVITY = 9.8
SECONDS = 0.2  # between steps
SPEED_LIMIT_1, SPEED_LIMIT_2 = 4 * math.pi, 9 * math.pi


class Physics(NamedTuple):
    angle_1: Array  # [b]: of the first link, from hanging down
    angle_2: Array  # of the second link, from the first
    speed_1: Array
    speed_2: Array


def make() -> Env:
    """Three torques (-1, 0, +1); -1 for each step but the one that reaches the line; 500 steps."""
    high = np.array([1, 1, 1, 1, SPEED_LIMIT_1, SPEED_LIMIT_2], np.float32)
    spec = EnvSpec("jax:Acrobot-v1", Box(-high, high), Discrete(3))
    return episodic(spec, start, move, observe, time_limit=500, draw=draw)


def start(keys: Array) -> Physics:
    return Physics(*uniform(keys, 4, -0.1, 0.1).T)


def move(physics: Physics, action: Array) -> tuple[Physics, Array, Array]:
    angle_1, angle_2, speed_1, speed_2 = _runge_kutta(physics, (action - 1).astype(jnp.float32))
    physics = Physics(
        _wrap(angle_1),
        _wrap(angle_2),
        jnp.clip(speed_1, -SPEED_LIMIT_1, SPEED_LIMIT_1),
        jnp.clip(speed_2, -SPEED_LIMIT_2, SPEED_LIMIT_2),
    )
    up = -jnp.cos(physics.angle_1) - jnp.cos(physics.angle_1 + physics.angle_2) > 1.0
    return physics, jnp.where(up, 0.0, -1.0), up


def observe(physics: Physics) -> Array:
    a, b, speed_1, speed_2 = physics
    return jnp.stack([jnp.cos(a), jnp.sin(a), jnp.cos(b), jnp.sin(b), speed_1, speed_2], axis=-1)


def draw(physics: Physics) -> Any:
    """Draw both links, and the line that the tip must reach."""
    canvas = Canvas(-2.3, 2.3, -2.3, 2.3, width=320)
    canvas.line([(-2.3, 1.0), (2.3, 1.0)], PALE, 0.03)
    angle, both = float(physics.angle_1), float(physics.angle_1 + physics.angle_2)
    elbow = (math.sin(angle), -math.cos(angle))
    canvas.rod((0.0, 0.0), elbow, 0.18, BLUE)
    canvas.rod(elbow, (elbow[0] + math.sin(both), elbow[1] - math.cos(both)), 0.18, RED)
    canvas.circle((0.0, 0.0), 0.05, INK)
    canvas.circle(elbow, 0.05, INK)
    return canvas.picture()


def _change(physics: Physics, torque: Array) -> Physics:
    """The time derivative of each part of the physics."""
    angle_1, angle_2, speed_1, speed_2 = physics
    cos, sin = jnp.cos(angle_2), jnp.sin(angle_2)
    inertia_1, inertia_2 = 3.5 + cos, 1.25 + 0.5 * cos
    pull_2 = 0.5 * GRAVITY * jnp.sin(angle_1 + angle_2)
    pull_1 = 1.5 * GRAVITY * jnp.sin(angle_1) + pull_2
    pull_1 = pull_1 - 0.5 * speed_2**2 * sin - speed_1 * speed_2 * sin
    ratio = inertia_2 / inertia_1
    push_2 = torque + ratio * pull_1 - 0.5 * speed_1**2 * sin - pull_2
    acceleration_2 = push_2 / (1.25 - ratio * inertia_2)
    acceleration_1 = -(inertia_2 * acceleration_2 + pull_1) / inertia_1
    return Physics(speed_1, speed_2, acceleration_1, acceleration_2)


def _runge_kutta(physics: Physics, torque: Array) -> Physics:
    """One step of SECONDS by the classic fourth-order method."""

    def ahead(seconds: float, change: Physics) -> Physics:
        return Physics(*(x + seconds * dx for x, dx in zip(physics, change, strict=True)))

    k1 = _change(physics, torque)
    k2 = _change(ahead(SECONDS / 2, k1), torque)
    k3 = _change(ahead(SECONDS / 2, k2), torque)
    k4 = _change(ahead(SECONDS, k3), torque)
    mixed = (a + 2 * b + 2 * c + d for a, b, c, d in zip(k1, k2, k3, k4, strict=True))
    return ahead(SECONDS / 6, Physics(*mixed))


def _wrap(angle: Array) -> Array:
    """Wrap an angle into -pi..pi."""
    return angle - 2 * math.pi * jnp.round(angle / (2 * math.pi))
