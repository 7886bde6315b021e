"""What a backend is: it carries the copies of a plan's pieces and what passes between them.

A call is asked for at once and answered in time: it gives a promise, which may be handed on to
another call before its value is there. Each copy answers its calls in the order in which they were
made. So the loop that makes the calls reads like one that waits, and only waits for what it must
know itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from rondel.errors import RondelError
from rondel.execution.hostenv.partition import groups
from rondel.execution.telemetry.timing import PiggybackedTimings
from rondel.plan.plan import Plan
from rondel.types import Env

Promise: TypeAlias = Any  # each backend has its own


class Copy(Protocol):
    """One copy of a piece, wherever it runs."""

    name: str  # for people: "actor 3 of 8"

    @property
    def seen(self) -> PiggybackedTimings | None:
        """What it last said in passing of where its time goes; nobody is asked for it."""

    def call(self, request: str, *args: Any) -> Promise:
        """Ask for something; a tuple of promises where `fragment.RESULTS` says so."""


class Restarts(NamedTuple):
    """How often copies were started again, and for how many seconds some were not there."""

    times: int = 0
    seconds: float = 0.0


class Backend(Protocol):
    """Where copies run."""

    def launch(self, task: Any, plan: Plan) -> list[list[Copy]]:
        """Start every copy of every piece, and connect policies with their environments."""

    def get(self, promises: Sequence[Promise]) -> list[Any]:
        """Their values, with NumPy or JAX arrays; whatever went wrong anywhere is raised here."""

    def wait(self, promises: Sequence[Promise]) -> list[int]:
        """Which of them are there by now: at least one."""

    def settled(self, now: bool = False) -> None:
        """The ring is between two rounds: a time, or with `now` the time, to keep what it is."""

    def restarts(self) -> Restarts:
        """Of all copies, so far."""

    def close(self) -> None:
        """End every copy; nothing stays behind."""


class Lost(RondelError):
    """A copy is gone: its process or actor died."""


class Unresponsive(RondelError):
    """Nothing was heard for too long."""


_UNDONE = {"step": "took no step", "reset": "began no episode"}


def env_timeout(env: str, request: str, seconds: float) -> Unresponsive:
    """An environment has not answered its policy within so many seconds."""
    undone = _UNDONE.get(request, f"did not answer `{request}`")
    why = "its environment hangs, or is slower than that"
    return Unresponsive(f"{env} {undone} within {seconds:g} s: {why}.")


def worker_factory(task: Any, plan: Plan, piece: int, copy: int) -> tuple[Any, tuple[Any, ...]]:
    """What makes a copy: a class and its arguments. Host environments alone need no jax."""
    if plan.pieces[piece].stages != ("env",):
        from rondel.execution.workers.stage_worker import StageWorker

        return StageWorker, (task, plan, piece, copy)
    mine = groups(plan, task.lanes, task.block, copy)
    if isinstance(task.env, Env):
        from rondel.execution.workers.jax_envs import JaxEnvs

        return JaxEnvs, (task, mine)
    from rondel.execution.hostenv.host_envs import HostEnvs

    return HostEnvs, (task.env, task.seed, mine)
