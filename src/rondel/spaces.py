"""The spaces of observations and actions.

A space is one of four small records, or a dict or tuple of them. The shapes are those of one
lane; a batch puts its axes in front. Nothing here imports jax: processes of environments use this
module too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from rondel.errors import RondelError


@dataclass(frozen=True, eq=False)
class Box:
    """Numbers between `low` and `high`, both of the space's shape (infinite: unbounded).

    Observations may stack `frames` along the first axis, the newest last. Each observation is then
    the one before, shifted by one with a new frame at its end, or (at the beginning of an episode)
    one frame in all places. Memory relies on it to store a frame once.
    """

    low: np.ndarray
    high: np.ndarray
    dtype: str = "float32"
    frames: int = 1

    def __post_init__(self) -> None:
        if self.frames != 1 and (self.frames < 1 or not self.shape or self.shape[0] % self.frames):
            raise RondelError(
                f"frames must divide the first axis of a Box, got {self.frames} for the shape "
                f"{self.shape}."
            )

    def __repr__(self) -> str:
        """A short text; bounds that differ between numbers appear as the widest."""
        bounds = f"{float(self.low.min()):g} to {float(self.high.max()):g}" if self.low.size else ""
        frames = f"frames={self.frames}" if self.frames != 1 else ""
        parts = (bounds, f"shape={self.shape}", self.dtype, frames)
        return f"Box({', '.join(filter(None, parts))})"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.low.shape

    def to_env(self, action: Any) -> Any:
        """Convert a policy's action to the environment's units.

        Policies act in -1..1, which maps onto low..high with clipping. Where a bound is infinite
        the number passes unchanged, clipped to the finite bound if there is one.
        """
        bounded, low, high = self._bounds
        part = (action.clip(-1.0, 1.0) + 1.0) * 0.5
        if np.issubdtype(self.dtype, np.integer):  # equal parts for all integers
            scaled = (low + part * (high - low + 1.0) - 0.5).round()
        else:
            scaled = low * (1.0 - part) + high * part
        scaled = scaled.clip(low, high).astype(self.dtype)
        if bounded.all():
            return scaled
        passed = action.clip(self.low, self.high).astype(self.dtype)
        return scaled * bounded + passed * ~bounded

    @cached_property
    def _bounds(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where both bounds are finite, and the bounds there."""
        bounded = np.isfinite(self.low) & np.isfinite(self.high)
        low, high = (np.where(bounded, b, 0).astype(np.float32) for b in (self.low, self.high))
        return bounded, low, high


@dataclass(frozen=True)
class Discrete:
    """One of `n` choices: an int32 from 0 inside Rondel, from `start` in the environment."""

    n: int
    start: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    dtype = "int32"

    def to_env(self, action: Any) -> Any:
        return action + self.start if self.start else action


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once: an int32 vector, the i-th entry one of `n[i]`, counted from 0."""

    n: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.n),)

    dtype = "int32"

    def to_env(self, action: Any) -> Any:
        return action


@dataclass(frozen=True)
class MultiBinary:
    """Flags: an int8 array of zeros and ones."""

    shape: tuple[int, ...]

    dtype = "int8"

    def to_env(self, action: Any) -> Any:
        return action


Leaf: TypeAlias = Box | Discrete | MultiDiscrete | MultiBinary
# a recursive type for "dict or tuple of itself" would help no caller
Space: TypeAlias = Any

MASK = "action_mask"
"""The key of allowed actions in a dict observation: a flag for each choice of a Discrete action;
for MultiDiscrete, the choices of all entries one after the other."""

STATE = "rondel:game_state"
"""The key of a game's state in a dict observation, for algorithms that search. No network sees it,
and memory need not keep it."""

UNSEEN = (MASK, STATE)
"""Parts of an observation that no network sees."""


def mask_of(obs: Any) -> Any:
    """The mask of allowed actions; None if the observation has none."""
    return obs[MASK] if isinstance(obs, dict) and MASK in obs else None


def unseen(obs: Any) -> dict[str, Any]:
    """The parts of an observation that no network sees: a mask, a game's state."""
    return {name: obs[name] for name in UNSEEN if isinstance(obs, dict) and name in obs}


def without_state(obs: Any) -> Any:
    """An observation, or a space, without a game's state."""
    if not isinstance(obs, dict):
        return obs
    return {name: part for name, part in obs.items() if name != STATE}


def zeros(space: Space, *batch: int) -> Any:
    """A tree of NumPy zeros of the space's shape, with `batch` axes in front."""
    if isinstance(space, dict):
        return {name: zeros(part, *batch) for name, part in space.items()}
    if isinstance(space, tuple):
        return tuple(zeros(part, *batch) for part in space)
    return np.zeros((*batch, *space.shape), space.dtype)


def with_frames(space: Space, frames: int) -> Space:
    """The space with that number of `frames` in every Box; only memory needs more than one."""
    if isinstance(space, dict):
        return {name: with_frames(part, frames) for name, part in space.items()}
    if isinstance(space, tuple):
        return tuple(with_frames(part, frames) for part in space)
    return replace(space, frames=frames) if isinstance(space, Box) else space


def to_json(space: Space) -> Any:
    """The space as JSON data, which differ for different spaces."""
    if isinstance(space, dict):
        return {"dict": {name: to_json(part) for name, part in space.items()}}
    if isinstance(space, tuple):
        return {"tuple": [to_json(part) for part in space]}
    if isinstance(space, Box):
        low, high = (np.asarray(b, np.float64) for b in (space.low, space.high))
        box = [_bound_to_json(low), _bound_to_json(high), list(space.shape), space.dtype]
        return {"box": [*box, space.frames] if space.frames > 1 else box}
    if isinstance(space, Discrete):
        return {"discrete": [space.n, space.start]}
    if isinstance(space, MultiDiscrete):
        return {"multi_discrete": list(space.n)}
    return {"multi_binary": list(space.shape)}


def _bound_to_json(bound: np.ndarray) -> Any:
    """One number where all are equal, else the flat list; infinity as text."""
    flat = bound.reshape(-1)
    same = flat.size > 0 and bool((flat == flat[0]).all())
    numbers = [float(x) if np.isfinite(x) else str(x) for x in (flat[:1] if same else flat)]
    return numbers[0] if same else numbers
