"""Environments outside JAX that are played in by the driver itself: a call that hangs is ended.

In training other processes can be started again; who plays a few episodes only wants to be told.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from rondel.envs.guard.crash_report import shortened
from rondel.envs.guard.watchdog import Watchdog
from rondel.types import Env, HostWorld, ShownEnv, Step

DEADLINE = 600.0  # seconds, unless a run has one of its own
FIRST = 60.0  # and at least so many for what is done for the first time
_Answer = TypeVar("_Answer")
_World = TypeVar("_World", bound=Env | HostWorld)


def with_deadline(world: _World, seconds: float = DEADLINE) -> _World:
    """The same, but a call that takes longer than so many seconds is an EnvError that names it.

    The first of each kind has a minute at least, and `close` is not watched. Where the main thread
    can't be interrupted, the process ends with that sentence. In other threads it is only told of,
    and native code that holds Python's lock is not ended.
    """
    if isinstance(world, Env):
        return world

    def guard(make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *where: _Guarded(world.spec.id, partial(make, *where), seconds)

    return world._replace(
        make=guard(world.make), show=None if world.show is None else guard(world.show)
    )


class _Call(NamedTuple):
    name: str
    argument: Any

    def __str__(self) -> str:
        return shortened(f"{self.name}({self.argument})")


class _Guarded:
    """A `ShownEnv` with a watchdog."""

    def __init__(self, env_id: str, make: Callable[[], ShownEnv], seconds: float) -> None:
        self._id, self._seconds = env_id, seconds
        self._known: set[object] = set()  # what it has done before
        self._watchdog = Watchdog(seconds, lambda: None, "while it was played in")
        try:
            self._env = self._watched("its making", make)
        except BaseException:
            self._watchdog.end()
            raise

    def reset(self, seeds: Any) -> Step:
        return self._watched(_Call("reset", seeds), self._env.reset, seeds)

    def step(self, action: Any) -> Step:
        return self._watched(_Call("step", action), self._env.step, action)

    def picture(self) -> Any:
        return self._watched("its drawing", self._env.picture)

    def close(self) -> None:
        self._watchdog.end()
        self._env.close()

    def _watched(self, what: object, call: Callable[..., _Answer], *arguments: Any) -> _Answer:
        kind = what.name if isinstance(what, _Call) else what
        seconds = self._seconds if kind in self._known else max(self._seconds, FIRST)
        with self._watchdog.looking(self._id, what, seconds):
            answer = call(*arguments)
        self._known.add(kind)
        return answer
