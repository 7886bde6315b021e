"""Deadlines for host environments that the driver itself plays in: a call that hangs is ended.

In training, backends start such processes again; evaluations and videos only need a message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from rondel.envs.errors import EnvError
from rondel.types import Env, HostWorld, ShownEnv, Step
from rondel.watchdog import Watchdog

DEADLINE = 600.0  # seconds, unless a run has one of its own
FIRST = 60.0  # seconds at least for the first call of each kind
_Answer = TypeVar("_Answer")
_World = TypeVar("_World", bound=Env | HostWorld)


def with_deadline(world: _World, seconds: float = DEADLINE) -> _World:
    """The world, with an EnvError for a call that takes longer than `seconds`.

    The first call of each kind has a minute at least, and `close` has no limit. A call that can't
    be interrupted ends the process with that message; outside the main thread there is only a
    warning. Native code that holds Python's lock is not ended.
    """
    if isinstance(world, Env):
        return world

    def guard(make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *where: _Guarded(world.spec.id, partial(make, *where), seconds)

    return world._replace(
        make=guard(world.make), show=None if world.show is None else guard(world.show)
    )


class _Guarded:
    """A `ShownEnv` with a watchdog."""

    def __init__(self, env_id: str, make: Callable[[], ShownEnv], seconds: float) -> None:
        self._id, self._seconds = env_id, seconds
        self._done: set[str] = set()  # kinds of calls that came back
        self._watchdog = Watchdog(seconds, "while it was played in", EnvError)
        try:
            self._env = self._call("make", make)
        except BaseException:
            self._watchdog.end()
            raise

    def reset(self, seeds: Any) -> Step:
        return self._call("reset", self._env.reset, seeds)

    def step(self, action: Any) -> Step:
        return self._call("step", self._env.step, action)

    def picture(self) -> Any:
        return self._call("picture", self._env.picture)

    def close(self) -> None:
        self._watchdog.end()
        self._env.close()

    def _call(self, name: str, call: Callable[..., _Answer], *arguments: Any) -> _Answer:
        is_first = name not in self._done
        seconds = max(self._seconds, FIRST) if is_first else self._seconds
        with self._watchdog.watch(self._id, f"{name}()", seconds):
            answer = call(*arguments)
        self._done.add(name)
        return answer
