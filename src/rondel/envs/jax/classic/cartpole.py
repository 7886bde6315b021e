"""CartPole-v1: keep a pole upright on a cart.

Barto, Sutton, Anderson, "Neuronlike adaptive elements that can solve difficult learning control
problems" (1983); Florian, "Correct equations for the dynamics of the cart-pole system" (2005),
derives the motion, here without friction.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from rondel.envs.jax.drawing import BLUE, INK, PALE, RED, Canvas
from rondel.envs.jax.episodic import episodic
from rondel.errors import RondelError
from rondel.ops.random import uniform
from rondel.spaces import Box, Discrete
from rondel.types import Array, Env, EnvSpec

GRAVITY, CART_MASS, POLE_MASS = 9.8, 1.0, 0.1
HALF_POLE = 0.5  # m
FORCE = 10.0
SECONDS = 0.02  # between steps
X_LIMIT, ANGLE_LIMIT = 2.4, math.radians(12)
TOTAL_MASS = CART_MASS + POLE_MASS


class Physics(NamedTuple):
    x: Array  # [b]
    x_speed: Array
    angle: Array  # from upright
    angle_speed: Array


def make(velocities: bool = True) -> Env:
    """Two actions (left, right); +1 for each step until the pole falls or 500 steps are done.

    Without `velocities` only x and the angle are observed, and their speeds must be inferred.
    """
    if not isinstance(velocities, bool):
        raise RondelError(f"velocities must be true or false, got {velocities}.")
    high = np.array([2 * X_LIMIT, np.inf, 2 * ANGLE_LIMIT, np.inf], np.float32)
    if velocities:
        spec = EnvSpec("jax:CartPole-v1", Box(-high, high), Discrete(2))
        return episodic(spec, start, move, observe, time_limit=500, draw=draw)
    spec = EnvSpec("jax:CartPole-v1?velocities=false", Box(-high[::2], high[::2]), Discrete(2))
    return episodic(spec, start, move, lambda p: observe(p)[:, ::2], time_limit=500, draw=draw)


def start(keys: Array) -> Physics:
    return Physics(*uniform(keys, 4, -0.05, 0.05).T)


def move(physics: Physics, action: Array) -> tuple[Physics, Array, Array]:
    x, x_speed, angle, angle_speed = physics
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    push = jnp.where(action == 1, FORCE, -FORCE)
    push = (push + POLE_MASS * HALF_POLE * angle_speed**2 * sin) / TOTAL_MASS
    inertia = HALF_POLE * (4 / 3 - POLE_MASS * cos**2 / TOTAL_MASS)
    angle_acceleration = (GRAVITY * sin - cos * push) / inertia
    x_acceleration = push - POLE_MASS * HALF_POLE * angle_acceleration * cos / TOTAL_MASS
    physics = Physics(
        x + SECONDS * x_speed,
        x_speed + SECONDS * x_acceleration,
        angle + SECONDS * angle_speed,
        angle_speed + SECONDS * angle_acceleration,
    )
    fallen = (jnp.abs(physics.x) > X_LIMIT) | (jnp.abs(physics.angle) > ANGLE_LIMIT)
    return physics, jnp.ones_like(x), fallen


def observe(physics: Physics) -> Array:
    return jnp.stack(physics, axis=-1)


def draw(physics: Physics) -> Any:
    """Draw the cart between the ends of its track."""
    canvas = Canvas(-2.8, 2.8, -0.6, 1.6)
    canvas.line([(-2.8, 0.0), (2.8, 0.0)], PALE)
    for end in (-X_LIMIT, X_LIMIT):
        canvas.line([(end, -0.1), (end, 0.1)], RED)
    x, angle = float(physics.x), float(physics.angle)
    left, right, top = x - 0.25, x + 0.25, 0.3
    canvas.polygon([(left, 0.0), (right, 0.0), (right, top), (left, top)], INK)
    tip = (x + 2 * HALF_POLE * math.sin(angle), top + 2 * HALF_POLE * math.cos(angle))
    canvas.rod((x, top), tip, 0.08, BLUE)
    return canvas.picture()
