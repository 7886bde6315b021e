"""The world `gymnax`: each of its environments as a traceable `Env`.

gymnax's `step` resets within the step that ends an episode, and computes that reset in every step.
So `episodic` wraps its `step_env` and `reset_env`, with the timeline of `types.Step`. Importing
this module imports neither jax nor gymnax, which takes seconds.

Shapes: gymnax's functions are for one lane; they are mapped over b.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from rondel.envs.errors import EnvError, UnknownId
from rondel.envs.world import World, is_installed
from rondel.errors import RondelError
from rondel.spaces import Box, Discrete, MultiBinary, Space
from rondel.types import Array, Env, EnvSpec, Tree

_INSTALL = 'pip install "rondel[gymnax]"'

BUILT_IN = (
    "CartPole-v1 Pendulum-v1 Acrobot-v1 MountainCar-v0 MountainCarContinuous-v0 "
    "Asterix-MinAtar Breakout-MinAtar Freeway-MinAtar Seaquest-MinAtar SpaceInvaders-MinAtar "
    "Catch-bsuite DeepSea-bsuite MemoryChain-bsuite UmbrellaChain-bsuite DiscountingChain-bsuite "
    "MNISTBandit-bsuite SimpleBandit-bsuite FourRooms-misc MetaMaze-misc PointRobot-misc "
    "BernoulliBandit-misc GaussianBandit-misc Reacher-misc Swimmer-misc Pong-misc FrozenLake-misc"
).split()
"""The ids of gymnax 1.0.1, listed without importing it."""

WRONG_BOUNDS = ("MemoryChain-bsuite", "GaussianBandit-misc", "MetaMaze-misc")
"""Ids with observations outside their space, which count as unbounded here."""


class Play(NamedTuple):
    """The state of b lanes."""

    state: Tree  # [b, ...]: gymnax's own
    obs: Tree  # [b, ...]: some of gymnax's observations don't follow from the state
    key: Array  # [b, 2] uint32: the episode's randomness
    moves: Array  # [b] uint32: steps of the episode; each folds its key


def from_id(name: str) -> Env:
    """Make the environment `name` with gymnax's default parameters.

    >>> from_id("Breakout-MinAtar").spec.id
    'gymnax:Breakout-MinAtar'
    """
    import gymnax

    if name not in gymnax.registered_envs:
        raise UnknownId(f"gymnax has no environment {name!r}.")
    try:
        task, params = gymnax.make(name)
    except Exception as error:
        raise EnvError(f"gymnax:{name} can't be made: {type(error).__name__}: {error}") from error
    env = from_task(task, params, f"gymnax:{name}")
    if name in WRONG_BOUNDS:
        endless = np.full(env.spec.observation.shape, np.inf, np.float32)
        env = env._replace(spec=env.spec._replace(observation=Box(-endless, endless)))
    return env


def registered() -> list[str]:
    """All ids, with those registered by now; none if gymnax is not installed."""
    if (gymnax := sys.modules.get("gymnax")) is not None:
        return list(gymnax.registered_envs)
    return list(BUILT_IN) if is_installed("gymnax") else []


def _has(name: str) -> bool | None:
    """Whether an id is gymnax's; None if it is not in the list above."""
    return name in BUILT_IN or name in registered() or (None if is_installed("gymnax") else False)


def from_task(task: Any, params: Any, env_id: str) -> Env:
    """Make an `Env` from any gymnax.environments.environment.Environment and its parameters.

    `env_id` names it: "gymnax:Breakout-MinAtar", "mine:maze".
    """
    import jax
    import jax.numpy as jnp

    from rondel.envs.jax.episodic import episodic, in_types_of
    from rondel.ops.random import IMPLEMENTATION, fold

    if not hasattr(task, "is_truncated"):
        raise RondelError(
            f"{env_id} must define is_truncated, which gymnax has since 1.0.1 ({_INSTALL})."
        )

    # real shapes and dtypes: some of gymnax's spaces say int32 for float observations
    any_key = jax.eval_shape(lambda: jax.random.key(0, impl=IMPLEMENTATION))
    shown, kept = jax.eval_shape(lambda key: task.reset_env(key, params), any_key)
    spec = EnvSpec(
        env_id,
        observation=observation_spec(task.observation_space(params), shown, env_id),
        action=action_spec(task.action_space(params), env_id),
    )

    def one_start(key: Array) -> Tree:
        with jax.numpy_rank_promotion("allow"):  # gymnax's code, not the user's
            obs, state = task.reset_env(key, params)
        return in_types_of(kept, state), _as_seen(spec.observation, obs)

    def one_move(key: Array, state: Tree, action: Array) -> Tree:
        with jax.numpy_rank_promotion("allow"):
            obs, state, reward, terminated, _ = task.step_env(key, state, action, params)
        obs, state = _as_seen(spec.observation, obs), in_types_of(kept, state)
        return state, obs, jnp.asarray(reward, jnp.float32), jnp.asarray(terminated, bool)

    def start(keys: Array) -> Play:
        moves = jnp.zeros(keys.shape, jnp.uint32)
        state, obs = jax.vmap(one_start)(fold(keys, moves))
        return Play(state, obs, jax.random.key_data(keys), moves)

    def move(play: Play, action: Array) -> tuple[Play, Array, Array]:
        moves = play.moves + 1
        keys = fold(jax.random.wrap_key_data(play.key, impl=IMPLEMENTATION), moves)
        state, obs, reward, terminated = jax.vmap(one_move)(keys, play.state, action)
        return Play(state, obs, play.key, moves), reward, terminated

    def cut_off(play: Play) -> Array:
        return jax.vmap(lambda state: jnp.asarray(task.is_truncated(state, params), bool))(
            play.state
        )

    return episodic(spec, start, move, observe=lambda play: play.obs, cut_off=cut_off)


def observation_spec(space: Any, shown: Tree, env_id: str) -> Space:
    """Convert an observation space, with the shapes and dtypes of `shown`; flags are int8."""
    kind = type(space).__name__
    if kind == "Dict":
        return {
            name: observation_spec(part, _part(shown, name), env_id)
            for name, part in space.spaces.items()
        }
    if kind == "Tuple":
        parts = zip(space.spaces, shown, strict=True)
        return tuple(observation_spec(part, one, env_id) for part, one in parts)
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "Box" and shown.dtype == bool:
        return MultiBinary(tuple(shown.shape))
    if kind == "Box":
        return _box(space, tuple(shown.shape), shown.dtype.name)
    raise _refusal(env_id, "observations", space, "Box, Discrete, or Dict or Tuple of these")


def action_spec(space: Any, env_id: str) -> Space:
    """Convert an action space."""
    kind = type(space).__name__
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "Box":
        return _box(space, tuple(space.shape), np.dtype(space.dtype).name)
    raise _refusal(env_id, "actions", space, "Discrete or Box")


def _refusal(env_id: str, what: str, space: Any, supported: str) -> RondelError:
    return RondelError(
        f"The {what} of {env_id} must be {supported}, got a {type(space).__name__} space "
        f"({space}). Wrap it in your own start, move and observe, for rondel.envs.jax.episodic."
    )


def _box(space: Any, shape: tuple[int, ...], dtype: str) -> Box:
    low, high = (
        np.broadcast_to(np.asarray(b), shape).astype(dtype) for b in (space.low, space.high)
    )
    return Box(low, high, dtype)


def _part(tree: Tree, name: str) -> Tree:
    """A named part of an observation, a dict or a record."""
    return tree[name] if isinstance(tree, dict) else getattr(tree, name)


def _as_seen(space: Space, obs: Tree) -> Tree:
    """Convert an observation to the tree and dtypes of `space`."""
    import jax.numpy as jnp

    if isinstance(space, dict):
        return {name: _as_seen(part, _part(obs, name)) for name, part in space.items()}
    if isinstance(space, tuple):
        return tuple(_as_seen(part, one) for part, one in zip(space, obs, strict=True))
    return jnp.asarray(obs, space.dtype)


WORLD = World(
    "gymnax",
    "gymnax's, in JAX, with MinAtar",
    registered,
    from_id,
    _has,
    library="gymnax",
    install=_INSTALL,
)
