"""Conversion of Gymnasium's spaces, observations and actions.

Inside Rondel numbers have at most 32 bits, choices count from 0 and flags are int8.
`observation_spec` and `action_spec` convert spaces, `writer` observations, `translator` actions.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import setitem
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces as gym_spaces

from rondel.errors import RondelError
from rondel.spaces import MASK, Box, Discrete, MultiBinary, MultiDiscrete, Space

Writer: TypeAlias = Callable[[Any, Any, Any], None]  # (out [b, ...], lane or slice of lanes, obs)

_NARROW = {"float64": "float32", "float16": "float32", "int64": "int32", "uint64": "uint32"}


def observation_spec(space: Any, env: str) -> Space:
    """Convert an observation space; errors name `env`."""
    match space:
        case gym_spaces.Box() if space.dtype == np.bool_:
            return MultiBinary(space.shape)
        case gym_spaces.Box():
            dtype = np.dtype(space.dtype).name
            dtype = _NARROW.get(dtype, dtype)
            low, high = (_narrow(bound, dtype) for bound in _bounds(space))
            return Box(low, high, dtype)
        case gym_spaces.Discrete():
            return Discrete(int(space.n), int(space.start))
        case gym_spaces.MultiDiscrete():
            return MultiDiscrete(tuple(space.nvec.reshape(-1).tolist()))
        case gym_spaces.MultiBinary():
            return MultiBinary(tuple(space.shape))
        case gym_spaces.Dict():
            spec = {name: observation_spec(part, env) for name, part in space.items()}
            if MASK in spec:  # whatever its space, a mask is flags here
                spec[MASK] = MultiBinary(spec[MASK].shape)
            return spec
        case gym_spaces.Tuple():
            return tuple(observation_spec(part, env) for part in space)
    raise RondelError(
        f"Observations of {env} must be arrays of one shape, got a {type(space).__name__} space "
        f"({space}). Use Box, Discrete, MultiDiscrete, MultiBinary, or Dict or Tuple of these; a "
        "gymnasium.ObservationWrapper can convert it."
    )


def action_spec(space: Any, env: str) -> Space:
    """Convert an action space; errors name `env`."""
    if isinstance(space, gym_spaces.Box | gym_spaces.Discrete | gym_spaces.MultiDiscrete):
        return observation_spec(space, env)
    raise RondelError(
        f"Actions of {env} must be Discrete, MultiDiscrete or Box, got a "
        f"{type(space).__name__} space ({space}). A gymnasium.ActionWrapper can convert it."
    )


def with_mask(observation: Space, action: Space, env: str) -> Space:
    """Add a mask to an observation space: a flag for each choice of the action."""
    if isinstance(action, Box):
        raise RondelError(f"An action mask needs discrete actions, but those of {env} are a Box.")
    choices = action.n if isinstance(action, Discrete) else sum(action.n)
    return {"observation": observation, MASK: MultiBinary((choices,))}


class ShapeMismatch(ValueError):
    """An observation whose shape is not its space's: NumPy would broadcast it silently."""


def writer(space: Any) -> Writer:
    """A function `write(out, lane, obs)`: put an observation into row `lane` of arrays [b, ...].

    With a slice as `lane`, `obs` is stacked observations.
    """
    parts: list[tuple[Any, Writer]]
    match space:
        case gym_spaces.Discrete(start=start) if start != 0:
            return lambda out, lane, obs: setitem(out, lane, obs - start)
        case gym_spaces.MultiDiscrete(start=start):
            return lambda out, lane, obs: setitem(out, lane, (obs - start).reshape(out[lane].shape))
        case gym_spaces.Dict():
            parts = [(name, writer(part)) for name, part in space.items()]
        case gym_spaces.Tuple():
            parts = [(place, writer(part)) for place, part in enumerate(space)]
        case gym_spaces.Box(shape=shape) | gym_spaces.MultiBinary(shape=shape):
            return _array_writer(shape)
        case _:
            return setitem

    def write(out: Any, lane: Any, obs: Any) -> None:
        for name, write_part in parts:
            write_part(out[name], lane, obs[name])

    return write


def _array_writer(shape: tuple[int, ...]) -> Writer:
    def write(out: Any, lane: Any, obs: Any) -> None:
        if getattr(obs, "shape", ()) != shape and np.shape(obs) != out[lane].shape:
            raise ShapeMismatch(f"an observation of shape {np.shape(obs)} instead of {shape}")
        out[lane] = obs

    return write


def masked_writer(space: Any) -> Writer:
    """A writer of (obs, info) pairs, where `info` has the mask."""
    write_obs = writer(space)

    def write(out: Any, lane: Any, seen: Any) -> None:
        obs, info = seen
        write_obs(out["observation"], lane, obs)
        out[MASK][lane] = flat_mask(info[MASK])

    return write


def flat_mask(mask: Any) -> Any:
    """Join a mask into one array of flags; a MultiDiscrete action has a tuple of arrays."""
    return np.concatenate(mask) if isinstance(mask, tuple) else np.asarray(mask)


def translator(space: Any) -> Callable[[Any], Any]:
    """A function of a policy's actions [b, ...] that returns them in the environment's units."""
    match space:
        case gym_spaces.Discrete(start=start):
            return lambda action: action + start if start else action.copy()
        case gym_spaces.MultiDiscrete(start=start, dtype=dtype):
            return lambda action: (action.reshape(-1, *start.shape) + start).astype(dtype)
    # in the environment's own precision: 0.1 in 32 bits lies beyond a bound of 0.1
    (low, high), wide = _bounds(space), np.result_type(space.dtype, np.float32)
    if np.isinf([low, high]).any() or np.issubdtype(space.dtype, np.integer):
        box = Box(low, high, space.dtype.name)
        return lambda action: box.to_env(action.astype(wide)).clip(low, high)
    half = (high.astype(wide) - low) * 0.5
    exact = (low + 2 * half <= high).all()

    def scale(action: Any) -> Any:
        """`Box.to_env` without the calls that only unbounded spaces need."""
        scaled = np.maximum(action, -1.0, dtype=wide)
        np.minimum(scaled, 1.0, out=scaled)
        scaled += 1.0
        scaled *= half
        scaled += low
        return (scaled if exact else scaled.clip(low, high)).astype(space.dtype, copy=False)

    return scale


def _bounds(space: Any) -> tuple[Any, Any]:
    """The bounds of a Box in its own precision.

    The greatest 32-bit number and all beyond it mean that there is no bound: no action could be
    scaled to it.
    """
    if np.issubdtype(space.dtype, np.integer):
        return space.low, space.high
    most = np.finfo(np.float32).max
    low = np.where(space.low <= -most, -np.inf, space.low)
    return low, np.where(space.high >= most, np.inf, space.high)


def _narrow(bound: Any, dtype: str) -> Any:
    if np.issubdtype(dtype, np.integer):
        bound = bound.clip(np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bound.astype(dtype)
