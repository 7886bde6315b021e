"""Looks at an environment before anything is trained on it: one sentence says what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from rondel.envs.trial import leaves, outside, random_action
from rondel.errors import RondelError
from rondel.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from rondel.types import Env, EnvSpec, HostWorld, Step

LANES, STEPS = 2, 16
_FIELDS = {
    "reward": "float32",
    "terminated": "bool",
    "truncated": "bool",
    "first": "bool",
    "episode_return": "float32",
    "episode_length": "int32",
}


def check(env: Env | HostWorld) -> None:
    """Try the environment for a few random steps; a RondelError says what is wrong with it, if
    anything.

    >>> check(make("CartPole-v1"))
    """
    if isinstance(env, Env):
        _check_traceable(env)
    else:
        _check_host(env)


def _check_host(world: HostWorld) -> None:
    name, random = world.spec.id, np.random.default_rng(0)
    host = world.make(LANES)
    try:
        # where there are raw Gymnasium environments, they show what the adapter only stumbles over
        for raw in getattr(host, "envs", []):
            from rondel.envs.gym.examine import examine

            examine(raw, name)
        step = host.reset(np.arange(LANES))
        _check_step(world.spec, step, f"reset() of {name}")
        for _ in range(STEPS):
            step = host.step(random_action(world.spec.action, LANES, random))
            _check_step(world.spec, step, f"step() of {name}")
    finally:
        host.close()


def _check_traceable(env: Env) -> None:
    import jax

    name, random = env.spec.id, np.random.default_rng(0)
    keys = jax.random.split(jax.random.key(0, impl="threefry2x32"), LANES)
    action = random_action(env.spec.action, LANES, random)
    state, step = _pair(jax.eval_shape(env.init, keys), f"init() of {name}")
    _check_shapes(env.spec, step, f"init() of {name}")
    after, step = _pair(jax.eval_shape(env.step, state, action), f"step() of {name}")
    _check_shapes(env.spec, step, f"step() of {name}")
    if jax.tree.map(_shape, state) != jax.tree.map(_shape, after):
        raise RondelError(
            f"step() of {name} changes the structure, a shape or a dtype of its state: it takes "
            f"{jax.tree.map(_shape, state)} and returns {jax.tree.map(_shape, after)}."
        )
    init, advance = jax.jit(env.init), jax.jit(env.step)
    state, step = init(keys)
    _check_step(env.spec, step, f"init() of {name}")
    for _ in range(STEPS):
        state, step = advance(state, random_action(env.spec.action, LANES, random))
        _check_step(env.spec, step, f"step() of {name}")


def _pair(result: Any, call: str) -> tuple[Any, Any]:
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Step)):
        raise RondelError(
            f"{call} returned a {type(result).__name__}; it must return (state, Step)."
        )
    return result


def _shape(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _check_shapes(spec: EnvSpec, step: Step, call: str) -> None:
    """Every array of a step as the spec says, [b, ...]."""
    if not isinstance(step, Step):
        raise RondelError(f"{call} returned a {type(step).__name__}; it must return a Step.")
    expected: list[tuple[str, tuple[int, ...], str, Any]] = [
        (f"Step.{name}", (), dtype, getattr(step, name)) for name, dtype in _FIELDS.items()
    ]
    try:
        for path, space, array in leaves(spec.observation, step.obs):
            expected.append((f"Step.obs{path}", space.shape, space.dtype, array))
    except (KeyError, IndexError, TypeError) as error:
        raise RondelError(
            f"{call} returned an observation without a part that its space has: {error}."
        ) from error
    for field, shape, dtype, array in expected:
        found = getattr(array, "shape", None), str(getattr(array, "dtype", type(array).__name__))
        if found != ((LANES, *shape), dtype):
            raise RondelError(
                f"{call} gave {field} as {found[1]} of shape {found[0]}; "
                f"with {LANES} lanes it must be {dtype} of shape {(LANES, *shape)}."
            )


def _check_step(spec: EnvSpec, step: Step, call: str) -> None:
    """A step with numbers in it: besides shapes, that they are finite and in their space."""
    _check_shapes(spec, step, call)
    if not np.isfinite(step.reward).all():
        raise RondelError(f"{call} gave the rewards {np.asarray(step.reward)}; all must be finite.")
    for path, space, leaf in leaves(spec.observation, step.obs):
        array = np.asarray(leaf)
        if not np.isfinite(array).all():
            raise RondelError(f"{call} gave an observation{path} that is not finite: {array}.")
        low, high = _bounds(space)
        if stray := outside(array, low, high):
            raise RondelError(f"{call} gave an observation{path} outside its space: {stray}.")


def _bounds(space: Any) -> tuple[Any, Any]:
    match space:
        case Box():
            return space.low, space.high
        case Discrete():
            return 0, space.n - 1
        case MultiDiscrete():
            return 0, np.array(space.n) - 1
        case MultiBinary():
            return 0, 1
    raise AssertionError(space)
