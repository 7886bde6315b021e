"""EnvPool's XLA interface: lanes that are stepped from inside a JAX program.

The lanes stay outside of JAX. A program carries a handle, which keeps the calls in order, and is
compiled for one pool. Lanes of a pool step together, so nothing here may be batched by `vmap` or
stepped in blocks.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rondel.envs.envpool.pool import Count, account, look, make_pool, nothing_yet
from rondel.envs.world import split
from rondel.errors import RondelError
from rondel.spaces import Discrete, Space
from rondel.types import Array, Env, EnvSpec, Step, Tree

_pools: dict[int, Any] = {}  # the open ones of this process, by number
_numbers = itertools.count()


@partial(jax.tree_util.register_dataclass, data_fields=["handle"], meta_fields=["number"])
@dataclass(frozen=True)
class Pool:
    """A pool of this process; its number is compiled into programs."""

    handle: Array
    number: int


class State(NamedTuple):
    """The state of a pool's lanes, as far as JAX has it."""

    pool: Pool
    games: Count


def from_id(name: str) -> Env:
    """Make the environment of an EnvPool id, such as "Pong-v5?episodic_life=true"."""
    task, arguments = split(name)
    spec, arguments = look(f"envpool-xla:{name}", task, arguments)
    _check(spec, task, arguments)
    return Env(spec, partial(_init, spec, task, arguments), partial(_step, spec), _close)


def _init(spec: EnvSpec, task: str, arguments: dict[str, Any], keys: Array) -> tuple[State, Step]:
    if isinstance(keys, jax.core.Tracer):
        raise RondelError(f"The lanes of {spec.id} must be started outside of JAX programs.")
    seeds = np.asarray(jax.random.key_data(keys))[:, -1] & 0x7FFFFFFF
    number, pool = next(_numbers), make_pool(spec.id, task, arguments, seeds.tolist())
    handle, none = pool.xla()[0], nothing_yet(len(seeds))
    obs, _ = pool.reset()
    _pools[number] = pool
    seen = _seen(spec.observation, obs)
    step = Step(seen, none.total, none.over, none.over, ~none.over, none.total, none.length)
    return jax.tree.map(jnp.array, (State(Pool(handle, number), none), step))


def _step(spec: EnvSpec, state: State, action: Array) -> tuple[State, Step]:
    _, _, _, advance = _pools[state.pool.number].xla()
    action = jax.vmap(spec.action.to_env)(action)
    handle, (obs, reward, terminated, truncated, info) = advance(state.pool.handle, action)
    count, reward, length = account(jnp, state.games, reward, terminated, truncated, info)
    first = state.games.over
    seen = _seen(spec.observation, obs)
    step = Step(seen, reward, terminated, truncated, first, count.total, length)
    return State(replace(state.pool, handle=handle), count), step


def _seen(space: Space, obs: Tree) -> Tree:
    """Observations as in `PoolLanes`: choices from 0, int8 flags."""
    if isinstance(space, dict):
        return {name: _seen(part, obs[name]) for name, part in space.items()}
    if isinstance(space, Discrete) and space.start:
        obs = obs - space.start
    return obs.astype(space.dtype)


def _close(state: State) -> None:
    jax.block_until_ready(state)  # type: ignore[no-untyped-call]  # programs may still use it
    pool = _pools.pop(state.pool.number, None)
    if pool is not None:
        pool.close()


def _check(spec: EnvSpec, task: str, arguments: dict[str, Any]) -> None:
    """Refuse 64-bit numbers: EnvPool passes them to JAX unconverted."""
    pool = make_pool(spec.id, task, arguments, [0])
    try:
        arrays = {**pool.spec.state_array_spec, **pool.spec.action_array_spec}
        wide = [key for key, array in arrays.items() if np.dtype(array.dtype).itemsize > 4]
    finally:
        pool.close()
    if wide:
        raise RondelError(
            f"{spec.id} has numbers of 64 bits ({', '.join(wide)}), but JAX uses 32. "
            f"Use envpool:{task}."
        )
