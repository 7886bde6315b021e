"""Environments in JAX from three functions: how an episode starts, moves and is observed.

`episodic` adds what every environment needs: time limits, the reset on the step after an episode's
end (the timeline of `types.Step`), and counts of return and length.

Shapes: b lanes; a task's physics is any tree of arrays [b, ...]: functions see all lanes at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rondel.ops.random import IMPLEMENTATION
from rondel.ops.select import select
from rondel.types import Array, Env, EnvSpec, Step, Tree


class Episode(NamedTuple):
    """The state of b lanes."""

    physics: Tree  # [b, ...]: the task's own state
    key: Array  # [b, 2] uint32: the episode's randomness; its second word counts episodes
    length: Array  # [b] int32: steps of this episode
    total: Array  # [b] float32: its rewards, summed
    over: Array  # [b] bool: it has ended, so the next step resets


def episodic(
    spec: EnvSpec,
    start: Callable[[Array], Tree],
    move: Callable[[Tree, Array], tuple[Tree, Array, Array]],
    observe: Callable[[Tree], Tree],
    time_limit: int | None = None,
    cut_off: Callable[[Tree], Array] | None = None,
    draw: Callable[[Tree], Any] | None = None,
) -> Env:
    """Make an environment from three functions over lanes.

    start(keys[b]) -> physics: begin an episode; each episode of a lane has its own key.
    move(physics, action[b]) -> (physics, reward[b], terminated[b]): one step; the action is in the
        environment's own units. For random moves, keep a key in the physics.
    observe(physics) -> obs[b], as `spec.observation` describes it.
    cut_off(physics) -> truncated[b], called after each move, for a task that itself decides when
        to cut off an episode.
    draw(physics of one lane, in NumPy) -> picture [height, width, 3] uint8, for `rondel watch`.

    After `time_limit` steps an episode is truncated, even if it terminates on that step (as in
    Gymnasium).

    >>> spec = EnvSpec("mine:walk", Box(-np.ones(1), np.ones(1)), Discrete(2))
    >>> walk = episodic(
    ...     spec,
    ...     start=lambda keys: jax.vmap(jax.random.uniform)(keys),
    ...     move=lambda x, action: (x + 0.1 * (2 * action - 1), -jnp.abs(x), jnp.abs(x) > 0.8),
    ...     observe=lambda x: x[:, None],
    ...     time_limit=100,
    ... )
    """
    limit = np.iinfo(np.int32).max if time_limit is None else time_limit

    def begin(key: Array) -> Tree:
        return start(jax.random.wrap_key_data(key, impl=IMPLEMENTATION))

    def init(keys: Array) -> tuple[Episode, Step]:
        key = jax.random.key_data(keys)
        physics = begin(key)
        length, total = jnp.zeros(len(key), jnp.int32), jnp.zeros(len(key), jnp.float32)
        never = jnp.zeros(len(key), bool)
        state = Episode(physics, key, length, total, over=never)
        return state, Step(observe(physics), total, never, never, ~never, total, length)

    def step(state: Episode, action: Array) -> tuple[Episode, Step]:
        first = state.over
        physics, reward, terminated = move(state.physics, jax.vmap(spec.action.to_env)(action))
        key = state.key + first[:, None] * np.array([[0, 1]], np.uint32)
        # a branch, since most steps end no episode, and a new start costs more than a move; it
        # must not use `physics`, or XLA may compute the move inside it (4 times slower in one game)
        fresh = jax.lax.cond(first.any(), lambda: begin(key), lambda: _blank(state.physics))
        physics = select(first, fresh, physics)
        reward = jnp.where(first, 0.0, reward).astype(jnp.float32)
        total = jnp.where(first, 0.0, state.total + reward)
        length = jnp.where(first, 0, state.length + 1)
        terminated, truncated = terminated & ~first, length >= limit
        if cut_off is not None:
            truncated = truncated | (cut_off(physics) & ~first)
        state = Episode(physics, key, length, total, over=terminated | truncated)
        return state, Step(observe(physics), reward, terminated, truncated, first, total, length)

    return Env(spec, init, step, draw=None if draw is None else lambda state: draw(state.physics))


def _blank(tree: Tree) -> Tree:
    """A cheap tree of the same shapes: zeros, but random keys as they are."""

    def blank(x: Array) -> Array:
        return x if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jnp.zeros_like(x)

    return jax.tree.map(blank, tree)


def in_types_of(like: Tree, tree: Tree) -> Tree:
    """Cast a tree to the dtypes of `like`: other libraries mix Python numbers with arrays."""
    return jax.tree.map(lambda one, x: jnp.asarray(x, one.dtype), like, tree)
