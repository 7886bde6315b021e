"""What a backend is: it carries the copies of a plan's pieces and what passes between them.

A call is asked for at once and answered in time: it gives a promise, which may be handed on to
another call before its value is there. Each copy answers its calls in the order in which they were
made. So the loop that makes the calls reads like one that waits, and only waits for what it must
know itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from rondel.errors import RondelError
from rondel.execution import requests
from rondel.execution.hostenv.host_envs import EnvApi
from rondel.execution.hostenv.partition import EVERYTHING, LaneShare, groups
from rondel.execution.requests import RESET, STEP, Request
from rondel.execution.telemetry.timing import PiggybackedTimings
from rondel.plan.plan import Plan
from rondel.types import Env

Promise: TypeAlias = Any  # each backend has its own


class WorkerApi(EnvApi, Protocol):
    """The requests of a copy: `workers.stage_worker` says what each does and gives.

    A backend's proxy implements `send`, and so has them all.
    """

    def send(self, request: Request, *args: Any) -> Promise:
        """Send a request and give its promise, or a tuple of them if it has several results."""

    def begin(self, again: int = 0) -> Promise:
        return self.send(requests.BEGIN, again)

    def begin_again(self, again: int) -> Promise:
        return self.send(requests.BEGIN_AGAIN, again)

    def produce(self, weights: Promise, round: int) -> tuple[Promise, Promise, Promise]:
        return self.send(requests.PRODUCE, weights, round)

    def add(self, round: int, share: LaneShare = EVERYTHING, *items: Promise) -> Promise:
        return self.send(requests.ADD, round, share, *items)

    def draw(self, round: int, j: int) -> Promise:
        return self.send(requests.DRAW, round, j)

    def rank(self, share: LaneShare, *feedback: Promise) -> Promise:
        return self.send(requests.RANK, share, *feedback)

    def know(self, variables: Promise) -> Promise:
        return self.send(requests.KNOW, variables)

    def label(
        self, round: int, j: int, share: LaneShare = EVERYTHING, *batches: Promise
    ) -> Promise:
        return self.send(requests.LABEL, round, j, share, *batches)

    def gradient(
        self,
        round: int,
        j: int,
        variables: Promise = None,
        share: LaneShare = EVERYTHING,
        *batches: Promise,
    ) -> tuple[Promise, Promise]:
        return self.send(requests.GRADIENT, round, j, variables, share, *batches)

    def absorb(self, *summaries: Promise) -> Promise:
        return self.send(requests.ABSORB, *summaries)

    def update(self, *contributions: Promise) -> Promise:
        return self.send(requests.UPDATE, *contributions)

    def learning(self) -> Promise:
        return self.send(requests.LEARNING)

    def acting(self) -> Promise:
        return self.send(requests.ACTING)

    def learn(self, round: int) -> Promise:
        return self.send(requests.LEARN, round)

    def advance(
        self, recent: Promise, round: int, rounds: int, steps_left: int, until_return: float
    ) -> Promise:
        return self.send(requests.ADVANCE, recent, round, rounds, steps_left, until_return)

    def snapshot(self, *names: str) -> Promise:
        return self.send(requests.SNAPSHOT, *names)

    def restore(self, parts: Mapping[str, Any]) -> Promise:
        return self.send(requests.RESTORE, parts)

    def keep(self, most_bytes: int) -> tuple[Promise, Promise]:
        return self.send(requests.KEEP, most_bytes)

    def metered(self) -> Promise:
        return self.send(requests.METERED)


class Copy(WorkerApi, Protocol):
    """One copy of a piece, wherever it runs."""

    name: str  # for people: "actor 3 of 8"

    def latest_timings(self) -> PiggybackedTimings | None:
        """Where its time goes, as it last said with an answer; reading this sends no request."""


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


_UNDONE = {STEP: "took no step", RESET: "began no episode"}


def env_timeout(env: str, request: Request, seconds: float) -> Unresponsive:
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
