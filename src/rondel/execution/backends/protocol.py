"""The interface of backends: they run the copies of a plan's pieces and carry their messages.

A request returns a promise at once, and a promise can be an argument of another request before its
value is there. Each copy answers its requests in the order in which they were sent. So the loop
reads as if it waited for each result, and waits only for those that it needs itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from rondel.errors import RondelError
from rondel.execution import requests
from rondel.execution.hostenv.host_envs import EnvApi
from rondel.execution.hostenv.partition import EVERYTHING, LaneShare, groups
from rondel.execution.requests import RESET, STEP, Request
from rondel.execution.telemetry.timing import PiggybackedTimings
from rondel.plan.plan import Plan
from rondel.types import Env

if TYPE_CHECKING:
    from rondel.execution.backends.lowering import Lowering

Promise: TypeAlias = Any  # each backend has its own


class WorkerApi(EnvApi, Protocol):
    """The requests of a copy; `workers.stage_worker` documents each.

    A backend's proxy implements `send` and inherits the rest.
    """

    def send(self, request: Request, *args: Any) -> Promise:
        """Send a request -> its promise, or a tuple of promises if it has several results."""

    def begin(self, episode: int = 0) -> Promise:
        return self.send(requests.BEGIN, episode)

    def begin_again(self, episode: int) -> Promise:
        return self.send(requests.BEGIN_AGAIN, episode)

    def produce(self, weights: Promise, round: int) -> tuple[Promise, Promise, Promise]:
        return self.send(requests.PRODUCE, weights, round)

    def add(self, round: int, share: LaneShare = EVERYTHING, *items: Promise) -> Promise:
        return self.send(requests.ADD, round, share, *items)

    def draw(self, round: int, j: int) -> Promise:
        return self.send(requests.DRAW, round, j)

    def rank(self, share: LaneShare, *feedback: Promise) -> Promise:
        return self.send(requests.RANK, share, *feedback)

    def set_label_variables(self, variables: Promise) -> Promise:
        return self.send(requests.SET_LABEL_VARIABLES, variables)

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

    def compute_rounds(
        self, recent: Promise, round: int, rounds: int, steps_left: int, until_return: float
    ) -> Promise:
        return self.send(requests.COMPUTE_ROUNDS, recent, round, rounds, steps_left, until_return)

    def snapshot(self, *names: str) -> Promise:
        return self.send(requests.SNAPSHOT, *names)

    def restore(self, parts: Mapping[str, Any]) -> Promise:
        return self.send(requests.RESTORE, parts)

    def keep(self, most_bytes: int) -> tuple[Promise, Promise]:
        return self.send(requests.KEEP, most_bytes)

    def timing_report(self) -> Promise:
        return self.send(requests.TIMING_REPORT)


class Copy(WorkerApi, Protocol):
    """One copy of a piece, wherever it runs."""

    name: str  # for people: "actor 3 of 8"

    def latest_timings(self) -> PiggybackedTimings | None:
        """The timing summary that came with its latest reply; reading it sends no request."""


class Restarts(NamedTuple):
    """How often copies were restarted, and for how many seconds some were missing."""

    times: int = 0
    seconds: float = 0.0


class Backend(Protocol):
    """Where copies run."""

    def launch(self, task: Any, lowering: Lowering) -> list[list[Copy]]:
        """Start every copy of every piece, and connect policies with their environments."""

    def get(self, promises: Sequence[Promise]) -> list[Any]:
        """The values of promises; raises what has failed in any copy."""

    def wait(self, promises: Sequence[Promise]) -> list[int]:
        """Indices of the promises whose values are there: at least one."""

    def after_round(self, now: bool = False) -> None:
        """Called between two rounds: snapshots may be taken, and with `now` must be."""

    def restarts(self) -> Restarts:
        """Of all copies, so far."""

    def close(self) -> None:
        """End every copy and free all that the backend holds."""


class Range(Protocol):
    """What carries the copies of a range, by their numbers; `loop.elastic` decides about them."""

    def here(self) -> Collection[int]: ...  # those that run
    def coming(self) -> Collection[int]: ...  # those that were started and are not ready yet
    def borrowers(self) -> Collection[int]: ...  # those on another's resources for now
    def rooms(self) -> Collection[int]: ...  # those that the cluster has resources for
    def is_done(self, copy: int) -> bool: ...  # will nothing that it made be requested again?
    def come(self, copy: int) -> None: ...  # start a copy; the run goes on meanwhile
    def move(self, copies: Sequence[int]) -> None: ...  # start copies again where they have room
    def go(self, copy: int) -> None: ...  # end a copy
    def state_of(self, copy: int) -> Any: ...  # the last state of one that is gone, or None
    def hold(self, copy: int, state: Any) -> None: ...  # keep the state that a copy will start with


class ElasticBackend(Backend, Protocol):
    """A backend whose copies may come and go, if its `BackendInfo.elastic` says so."""

    @property
    def elastic(self) -> Range:
        """What carries the copies of a range; only asked for if the plan has one."""


class Lost(RondelError):
    """A copy is gone: its process or actor has died."""


class Unresponsive(RondelError):
    """A copy did not answer in time."""


_UNDONE = {STEP: "took no step", RESET: "began no episode"}


def env_timeout(env: str, request: Request, seconds: float) -> Unresponsive:
    """The error for an environment that has not answered its policy in time."""
    undone = _UNDONE.get(request, f"did not answer `{request}`")
    why = "its environment hangs, or needs a longer --deadline"
    return Unresponsive(f"{env} {undone} within {seconds:g} s: {why}.")


def worker_factory(task: Any, plan: Plan, piece: int, copy: int) -> tuple[Any, tuple[Any, ...]]:
    """The class of a copy's worker and its arguments. Host environments alone need no jax."""
    if plan.pieces[piece].stages != ("env",):
        from rondel.execution.workers.stage_worker import StageWorker

        return StageWorker, (task, plan, piece, copy)
    mine = groups(plan, task.lanes, task.block, copy)
    if isinstance(task.env, Env):
        from rondel.execution.workers.jax_envs import JaxEnvs

        return JaxEnvs, (task, mine)
    from rondel.execution.hostenv.host_envs import HostEnvs

    return HostEnvs, (task.env, task.seed, mine)
