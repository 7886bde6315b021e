"""Frames that Gymnasium environments stack, so that memory can store each once."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.wrappers import FrameStackObservation

_ELSEWHERE = ("common", "stateful_reward", "transform_reward")
"""Modules in `gymnasium.wrappers` whose wrappers leave observations as they are."""


def stacked_by(env: Any) -> int:
    """The number of frames that an environment stacks as `Box.frames` requires; 1 if unknown.

    `FrameStackObservation` does, if episodes begin with one frame repeated. Wrappers around it must
    be known to leave observations alone.
    """
    while isinstance(env, gymnasium.Wrapper):
        if type(env) is FrameStackObservation:  # a subclass may stack differently
            return env.stack_size if env.padding_type == "reset" else 1
        package, _, module = type(env).__module__.rpartition(".")
        if package != "gymnasium.wrappers" or module not in _ELSEWHERE:
            return 1
        env = env.env
    return 1
