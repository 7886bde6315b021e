"""Stacked frames in what Gymnasium environments observe, so that memory can store each once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
from gymnasium.wrappers import FrameStackObservation

from rondel.spaces import Box, Space

_ELSEWHERE = ("common", "stateful_reward", "transform_reward")
"""Modules in `gymnasium.wrappers` whose wrappers leave observations as they are."""


def stacked_by(env: Any) -> int:
    """How many frames an environment stacks as `Box` promises it; 1 where that is not known.

    So does `FrameStackObservation`, where episodes begin with one frame in all places. What is
    around it must be known to leave observations alone.
    """
    while isinstance(env, gymnasium.Wrapper):
        if type(env) is FrameStackObservation:  # one of its own kind may promise something else
            return env.stack_size if env.padding_type == "reset" else 1
        package, _, module = type(env).__module__.rpartition(".")
        if package != "gymnasium.wrappers" or module not in _ELSEWHERE:
            return 1
        env = env.env
    return 1


def stack_frames(space: Space, frames: int) -> Space:
    """The space, each Box of which stacks so many frames in its first axis."""
    if isinstance(space, dict):
        return {name: stack_frames(part, frames) for name, part in space.items()}
    if isinstance(space, tuple):
        return tuple(stack_frames(part, frames) for part in space)
    return replace(space, frames=frames) if isinstance(space, Box) else space
