"""Environments outside JAX that are played in by the driver itself: a call that hangs is ended.

In training other processes can be started again; who plays a few episodes only wants to be told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from rondel.envs.overdue import Watchdog
from rondel.types import Env, HostWorld, ShownEnv, Step

DEADLINE = 600.0  # seconds, unless a run has one of its own
_LONGEST = 300  # letters of an action
_World = TypeVar("_World", bound=Env | HostWorld)


def guarded(world: _World, seconds: float = DEADLINE) -> _World:
    """The same, but a call that takes longer than so many seconds is an EnvError that names it.

    Where it can't be interrupted, the process ends with that sentence.
    """
    if isinstance(world, Env):
        return world

    def guard(make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *where: _Guarded(world.spec.id, make(*where), seconds)

    return world._replace(
        make=guard(world.make), show=None if world.show is None else guard(world.show)
    )


class _Call(NamedTuple):
    name: str
    argument: Any

    def __str__(self) -> str:
        said = " ".join(f"{self.name}({self.argument})".split())
        return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"


class _Guarded:
    """A `ShownEnv` with a watchdog."""

    def __init__(self, env_id: str, env: ShownEnv, seconds: float) -> None:
        self._id, self._env = env_id, env
        self._watchdog = Watchdog(seconds, lambda: None, "while it was played in")

    def reset(self, seeds: Any) -> Step:
        return self._watched(self._env.reset, "reset", seeds)

    def step(self, action: Any) -> Step:
        return self._watched(self._env.step, "step", action)

    def picture(self) -> Any:
        return self._env.picture()

    def close(self) -> None:
        self._watchdog.end()
        self._env.close()

    def _watched(self, call: Callable[[Any], Step], name: str, argument: Any) -> Step:
        with self._watchdog.looking(self._id, _Call(name, argument)):
            return call(argument)
