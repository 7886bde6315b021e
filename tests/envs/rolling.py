"""Runs of environments that several tests compare."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np

from rondel.envs.guard.sampling import random_action


def keys(b: int, seed: int = 3) -> Any:
    return jax.random.split(jax.random.key(seed, impl="threefry2x32"), b)


def random_actions(env: Any, steps: int, b: int, seed: int = 0) -> np.ndarray:
    """[T, b, ...]"""
    random = np.random.default_rng(seed)
    return np.stack([random_action(env.spec.action, b, random) for _ in range(steps)])


@cache
def _roller(init: Any, step: Any) -> Any:
    def roll(keys: Any, actions: Any) -> Any:
        state, first_step = init(keys)

        def advance(state: Any, action: Any) -> Any:
            after, record = step(state, action)
            return after, (state, record)

        _, (states, steps) = jax.lax.scan(advance, state, actions)
        return states, first_step, steps

    return jax.jit(roll)


def roll(env: Any, keys: Any, actions: Any) -> Any:
    """(states before each step [T, b], the first Step [b], all further Steps [T, b]) as NumPy."""
    return jax.tree.map(np.asarray, _roller(env.init, env.step)(keys, actions))
