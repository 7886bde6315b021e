"""The worlds `envpool` and `envpool-xla`. Importing this imports neither EnvPool nor jax."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from rondel.envs.world import Equivalent, World, is_installed, split
from rondel.types import Env, EnvSpec, HostWorld

_MUJOCO = (
    *("Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum"),
    *("InvertedPendulum", "Pusher", "Reacher", "Swimmer", "Walker2d"),
)
AS_IN_GYMNASIUM = {
    *("BipedalWalker-v3", "BipedalWalkerHardcore-v3", "CarRacing-v3"),
    *("LunarLander-v3", "LunarLanderContinuous-v3"),
    *("Blackjack-v1", "CliffWalking-v1", "CliffWalkingSlippery-v1"),
    *("FrozenLake-v1", "FrozenLake8x8-v1"),
    *(f"{name}-v{version}" for name in _MUJOCO for version in (4, 5)),
}
"""Ids that mean the same in both, known without EnvPool. Atari's are in both, but preprocessed."""


def _ids() -> list[str]:
    if not is_installed("envpool"):
        return []
    from rondel.envs.envpool.pool import registered

    return registered()


def _has(name: str) -> bool | None:
    bare = split(name)[0]
    if is_installed("envpool"):
        return bare in _ids()
    return True if bare in AS_IN_GYMNASIUM else None


def _make(name: str) -> HostWorld:
    from rondel.envs.envpool.pool import PoolLanes, look

    task, arguments = split(name)
    spec, arguments = look(f"envpool:{name}", task, arguments)
    parts = (spec, task, arguments)
    return HostWorld(spec, partial(PoolLanes, *parts), partial(_shown, *parts))


def _shown(spec: EnvSpec, task: str, arguments: dict[str, Any]) -> Any:
    """A lane with pictures, if EnvPool can draw it here."""
    from rondel.envs.envpool.pool import DRAWN, PoolLanes
    from rondel.envs.envpool.render_probe import can_be_drawn

    drawn = DRAWN if can_be_drawn(task, arguments) else {}
    return PoolLanes(spec, task, arguments | drawn, 1)


def _make_xla(name: str) -> Env:
    from rondel.envs.envpool.xla_pool import from_id

    return from_id(name)


def _equivalent(name: str) -> Equivalent | None:
    if name.startswith("ALE/") and name.endswith("-v5"):
        game = name.removeprefix("ALE/")
        return Equivalent(f"envpool:{game}", ", which shows 84 x 84 grey pixels")
    return Equivalent(f"envpool:{name}") if name in AS_IN_GYMNASIUM else None


ENVPOOL = World(
    "envpool",
    "EnvPool's, stepped by threads in C++: Atari, MuJoCo, Procgen and more",
    _ids,
    _make,
    _has,
    library="envpool",
    install='pip install "rondel[envpool]"',
    picture_hint=(
        "EnvPool can't draw it on this machine. For MuJoCo it needs the libraries of EGL (on "
        "Debian and Ubuntu libegl1 and libegl-mesa0)."
    ),
    threads=True,
    equivalent=_equivalent,
)
ENVPOOL_XLA = replace(
    ENVPOOL,
    name="envpool-xla",
    summary="EnvPool's, called from the XLA program",
    ids=list,  # not listed twice
    make=_make_xla,
    on_host="envpool",
    equivalent=None,
)
