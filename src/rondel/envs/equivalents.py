"""Which environments of Gymnasium there are in a quicker form: in JAX, or in EnvPool's C++.

By name alone, so that it can be said where EnvPool is not installed.
"""

from __future__ import annotations

from rondel.envs.registry import CLASSICS

_MUJOCO = (
    *("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum"),
    *("InvertedPendulum", "Pusher", "Reacher", "Swimmer", "Walker2d"),
)
IN_ENVPOOL = {
    *("BipedalWalker-v3", "BipedalWalkerHardcore-v3", "CarRacing-v3"),
    *("LunarLander-v3", "LunarLanderContinuous-v3"),
    *("Blackjack-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1"),
    *("FrozenLake-v1", "FrozenLake8x8-v1"),
    *(f"{name}-v{version}" for name in _MUJOCO for version in (4, 5)),
}
"""Ids that mean the same there. Atari's games are there too, all of them, but preprocessed."""


def faster_equivalent(env_id: str) -> str | None:
    """The id of the same environment in a quicker world, if there is one.

    Of Atari it is the same game, but not what is seen of it: 84 x 84 grey pixels, 4 stacked.

    >>> quicker("gymnasium:Ant-v5"), quicker("gymnasium:ALE/Pong-v5"), quicker("gymnasium:Taxi-v4")
    ('envpool:Ant-v5', 'envpool:Pong-v5', None)
    """
    world, _, name = env_id.partition(":")
    if world != "gymnasium":
        return None
    if name in CLASSICS:
        return f"jax:{name}"
    if name.startswith("ALE/") and name.endswith("-v5"):
        return f"envpool:{name.removeprefix('ALE/')}"
    return f"envpool:{name}" if name in IN_ENVPOOL else None
