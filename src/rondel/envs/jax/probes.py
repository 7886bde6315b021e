"""Probe environments: tiny, with known values, so that a failure names its cause.

The probe that an algorithm fails says where to look: `one` at the value loss, `observation` at how
the value depends on observations, `delay` at bootstrapping, `action` at the policy, `both` at the
two together, `memory` at the recurrent state, `continuous` at the scaling of actions. V is the
value of the best policy with discount g; observations are float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from rondel.envs.jax.drawing import BLUE, INK, PALE, RED, Canvas
from rondel.envs.jax.episodic import episodic
from rondel.ops.random import uniform
from rondel.spaces import Box, Discrete
from rondel.types import Array, Env, EnvSpec

MEMORY_STEPS = 4


class Cue(NamedTuple):
    sign: Array  # [b] float32: -1 or +1
    steps: Array  # [b] int32


def one() -> Env:
    """One step, observation 0, two actions, reward 1 for both: V = Q = 1."""
    return _of_a_number("one", _nothing, lambda x, _: (x, x + 1.0, x == 0))


def observation() -> Env:
    """One step, observation -1 or +1, equal to the reward: V(-1) = -1, V(+1) = 1."""
    return _of_a_number("observation", _sign, lambda sign, _: (sign, sign, sign != 0))


def delay() -> Env:
    """Two steps, observations 0 then 1, rewards 0 then 1: V(0) = g, V(1) = 1, return 1."""

    def move(steps: Array, _: Array) -> tuple[Array, Array, Array]:
        return steps + 1, steps, steps == 1

    return _of_a_number("delay", _nothing, move, high=2.0)


def action() -> Env:
    """One step, observation 0, reward -1 for action 0, +1 for action 1: Q = -1 and 1, V = 1."""

    def move(nothing: Array, chosen: Array) -> tuple[Array, Array, Array]:
        return nothing, _as_sign(chosen), nothing == 0

    return _of_a_number("action", _nothing, move)


def both() -> Env:
    """One step, observation -1 or +1; reward +1 for the action of its sign (0 or 1), else -1.

    V = 1, return 1; a policy that ignores the observation gets 0 on average.
    """

    def move(sign: Array, chosen: Array) -> tuple[Array, Array, Array]:
        return sign, sign * _as_sign(chosen), sign != 0

    return _of_a_number("both", _sign, move)


def memory() -> Env:
    """Four steps, observation (cue, asked): (-1 or +1, 0), then (0, 0) twice, then (0, 1).

    Only the last action counts: +1 if it is that of the cue's sign (0 or 1), else -1. The best
    return is 1, with V = g**3, g**2, g, 1; a policy without memory gets 0 on average.
    """

    def move(cue: Cue, chosen: Array) -> tuple[Cue, Array, Array]:
        asked = cue.steps == MEMORY_STEPS - 1
        reward = jnp.where(asked, cue.sign * _as_sign(chosen), 0.0)
        return Cue(cue.sign, cue.steps + 1), reward, asked

    def observe(cue: Cue) -> Array:
        shown = jnp.where(cue.steps == 0, cue.sign, 0.0)
        asked = cue.steps == MEMORY_STEPS - 1
        return jnp.stack([shown, asked.astype(jnp.float32)], axis=-1)

    def start(keys: Array) -> Cue:
        sign = _sign(keys)
        return Cue(sign, jnp.zeros_like(sign, jnp.int32))

    def draw(cue: Cue) -> Any:
        asked = int(cue.steps) == MEMORY_STEPS - 1
        return _on_a_line(cue.sign if cue.steps == 0 else 0.0, RED if asked else BLUE)

    return episodic(_spec("memory", size=2), start, move, observe, draw=draw)


def continuous() -> Env:
    """One step, observation x uniform in -1..1, one action a in -2..2, reward -(a - x)**2.

    V = 0 with a = x, which is x / 2 in a policy's units of -1..1. The best policy that ignores
    the observation, a = 0, gets -1/3 on average.
    """

    def move(x: Array, chosen: Array) -> tuple[Array, Array, Array]:
        return x, -((chosen[:, 0] - x) ** 2), jnp.ones_like(x, bool)

    bound = np.full(1, 2.0, np.float32)
    spec = _spec("continuous")._replace(action=Box(-bound, bound))
    return episodic(
        spec,
        start=lambda keys: uniform(keys, 1, -1.0, 1.0)[:, 0],
        move=move,
        observe=_column,
        draw=_on_a_line,
    )


def _of_a_number(name: str, start: Any, move: Any, high: float = 1.0) -> Env:
    """A probe whose state is one number, which is observed."""
    return episodic(_spec(name, high=high), start, move, _column, draw=_on_a_line)


def _spec(name: str, size: int = 1, high: float = 1.0) -> EnvSpec:
    bound = np.full(size, high, np.float32)
    return EnvSpec(f"probe:{name}", Box(-bound, bound), Discrete(2))


def _nothing(keys: Array) -> Array:
    return jnp.zeros(keys.shape, jnp.float32)


def _sign(keys: Array) -> Array:
    return jnp.where(uniform(keys, 1)[:, 0] < 0.5, -1.0, 1.0)


def _as_sign(chosen: Array) -> Array:
    return 2.0 * chosen - 1.0


def _column(physics: Array) -> Array:
    return physics[:, None]


def _on_a_line(x: Any, colour: str = BLUE) -> Any:
    """Draw the observation as a point between -2 and 2."""
    canvas = Canvas(-2.2, 2.2, -0.5, 0.5, width=320)
    canvas.line([(-2.0, 0.0), (2.0, 0.0)], PALE)
    for mark in (-1.0, 0.0, 1.0):
        canvas.line([(mark, -0.08), (mark, 0.08)], INK)
    canvas.circle((float(x), 0.0), 0.12, colour)
    return canvas.picture()
