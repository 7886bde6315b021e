"""Gymnasium's spaces in Rondel's terms, and values across the border in both directions.

Inside Rondel numbers are 32 bits wide at most, choices count from 0 and flags are int8.
`observation_spec` and `action_spec` say what a space becomes, `writer` brings observations in,
`translator` brings actions out.
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
    """What observations of this Gymnasium space are inside Rondel; a refusal names `env`."""
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
            if MASK in spec:  # however the environment describes its mask, here it is flags
                spec[MASK] = MultiBinary(spec[MASK].shape)
            return spec
        case gym_spaces.Tuple():
            return tuple(observation_spec(part, env) for part in space)
    raise RondelError(
        f"{env} observes a {type(space).__name__} space ({space}), not arrays of one shape; "
        "supported are Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of these. "
        "A gymnasium.ObservationWrapper can convert it."
    )


def action_spec(space: Any, env: str) -> Space:
    """What actions of this Gymnasium space are inside Rondel; a refusal names `env`."""
    if isinstance(space, gym_spaces.Box | gym_spaces.Discrete | gym_spaces.MultiDiscrete):
        return observation_spec(space, env)
    raise RondelError(
        f"{env} acts in a {type(space).__name__} space ({space}); supported are Discrete, "
        "MultiDiscrete and Box. A gymnasium.ActionWrapper can convert it."
    )


def with_mask(observation: Space, action: Space, env: str) -> Space:
    """An observation with a flag beside it for each choice of the action, entry after entry."""
    if isinstance(action, Box):
        raise RondelError(
            f"{env} gives an action mask, but its action is a Box: there is no choice."
        )
    choices = action.n if isinstance(action, Discrete) else sum(action.n)
    return {"observation": observation, MASK: MultiBinary((choices,))}


class ShapeMismatch(ValueError):
    """An observation of another shape than its space's: NumPy would fill its row with it."""


def writer(space: Any) -> Writer:
    """`write(out, lane, obs)` puts an observation into row `lane` of a tree of arrays [b, ...].

    With a slice for `lane` it puts stacked observations into those rows.
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
            raise ShapeMismatch(f"an observation of shape {np.shape(obs)}; its space says {shape}")
        out[lane] = obs

    return write


def masked_writer(space: Any) -> Writer:
    """The writer for (obs, info) pairs, where `info` holds the mask."""
    write_obs = writer(space)

    def write(out: Any, lane: Any, seen: Any) -> None:
        obs, info = seen
        write_obs(out["observation"], lane, obs)
        out[MASK][lane] = flat_mask(info[MASK])

    return write


def flat_mask(mask: Any) -> Any:
    """A mask as one array of flags; that of a MultiDiscrete action is a tuple of arrays."""
    return np.concatenate(mask) if isinstance(mask, tuple) else np.asarray(mask)


def translator(space: Any) -> Callable[[Any], Any]:
    """`translate(action)` turns what policies say, [b, ...], into new values in the env's units."""
    match space:
        case gym_spaces.Discrete(start=start):
            return lambda action: action + start if start else action.copy()
        case gym_spaces.MultiDiscrete(start=start, dtype=dtype):
            return lambda action: (action.reshape(-1, *start.shape) + start).astype(dtype)
    # in the environment's own precision: rounded to 32 bits, 0.1 would lie beyond a bound of 0.1
    (low, high), wide = _bounds(space), np.result_type(space.dtype, np.float32)
    if np.isinf([low, high]).any() or np.issubdtype(space.dtype, np.integer):
        box = Box(low, high, space.dtype.name)
        return lambda action: box.to_env(action.astype(wide)).clip(low, high)
    half = (high.astype(wide) - low) * 0.5
    exact = (low + 2 * half <= high).all()

    def scale(action: Any) -> Any:
        """The arithmetic of `Box.to_env`, without the calls that only unbounded spaces need."""
        scaled = np.maximum(action, -1.0, dtype=wide)
        np.minimum(scaled, 1.0, out=scaled)
        scaled += 1.0
        scaled *= half
        scaled += low
        return (scaled if exact else scaled.clip(low, high)).astype(space.dtype, copy=False)

    return scale


def _bounds(space: Any) -> tuple[Any, Any]:
    """The bounds of a Box in its own precision.

    What no 32 bits can hold, and the greatest number that they can, says that there is no bound:
    that is what it is written for, and no action could be scaled to it.
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
