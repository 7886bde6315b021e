"""The world `gymnasium`. Importing this does not import Gymnasium."""

from __future__ import annotations

from rondel.envs.world import World
from rondel.types import HostWorld


def _ids() -> list[str]:
    from rondel.envs.gymnasium.make import registered

    return registered()


def _make(name: str) -> HostWorld:
    from rondel.envs.gymnasium.make import from_id

    return from_id(name)


def _has(name: str) -> bool:
    from rondel.envs.gymnasium.make import is_registered

    return is_registered(name)


GYMNASIUM = World("gymnasium", "every environment registered with Gymnasium", _ids, _make, _has)
