"""Every copy in a thread of this process: messages are passed by reference.

It pays where the work releases Python's lock, as XLA's programs and some environments do.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import suppress
from typing import Any

from rondel.execution.backends.lowering import Lowering
from rondel.execution.backends.protocol import (
    Copy,
    Lost,
    Restarts,
    Unresponsive,
    env_timeout,
    worker_factory,
)
from rondel.execution.backends.serve_request import separate_results, serve_request
from rondel.execution.hostenv.host_envs import EnvClient
from rondel.execution.requests import MAKE, Request
from rondel.execution.telemetry.timeouts import Timeouts, no_answer, timeouts_for
from rondel.execution.telemetry.timing import PiggybackedTimings
from rondel.plan.plan import copy_name, env_copies_of, has_separate_envs
from rondel.types import Step

_GRACE = 30.0  # seconds that threads have to end


class ThreadProxy(Copy):
    """A copy in a thread of its own, which answers one request after the other."""

    def __init__(self, name: str, failures: list[BaseException]) -> None:
        self.name = name
        self.worker: Any = None
        self.open: set[Future[Any]] = set()  # promises without a value
        self.at: Any = None  # the request under way
        self.known: set[Any] = set()  # requests that it has answered
        self._failures = failures  # of all copies; they already name their copy
        self._stopped = False
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._answer, name=f"rondel {name}", daemon=True)
        self._thread.start()

    def latest_timings(self) -> PiggybackedTimings | None:
        return None if self.worker is None else self.worker.timings()

    def send(self, request: Request, *args: Any) -> Any:
        promises = [Future[Any]() for _ in range(request.results)]
        self.open.update(promises)
        self._calls.put((request, args, promises))
        if self._stopped:
            self._fail(promises, Lost(f"{self.name} has ended."))
        return promises[0] if len(promises) == 1 else tuple(promises)

    def stop(self) -> None:
        """End after the request under way; promises of further ones fail."""
        self._stopped = True
        self._calls.put(None)
        self._fail(list(self.open), Lost(f"{self.name} has ended."))

    def join(self, seconds: float) -> None:
        """Wait for its end, at most this long."""
        self._thread.join(seconds)

    def _answer(self) -> None:
        while (call := self._calls.get()) is not None:
            self._answer_one(*call)
            del call  # nothing is held on to while waiting
        if self.worker is not None:
            self.worker.close()

    def _answer_one(
        self, request: Request, args: tuple[Any, ...], promises: list[Future[Any]]
    ) -> None:
        try:
            # the makers were asked before, so this wait ends; their failure is ours
            args = tuple(a.result() if isinstance(a, Future) else a for a in args)
            if self._stopped:
                return
            if self._failures:  # perhaps of a request that nobody waits for
                raise self._failures[0]
            self.at = request
            if request is MAKE:
                make, *rest = args
                self.worker, result = make(*rest), None
            else:
                result = serve_request(self.worker, request, args)
        except BaseException as error:
            if not any(error is other for other in self._failures):
                self._failures.append(error)
                error.add_note(f"In {self.name}.")
            self._fail(promises, error)
            return
        self.known.add(request)
        for promise, one in zip(promises, separate_results(request, result), strict=True):
            with suppress(InvalidStateError):  # it was stopped
                promise.set_result(one)
            self.open.discard(promise)

    def _fail(self, promises: list[Future[Any]], error: BaseException) -> None:
        for promise in promises:
            with suppress(InvalidStateError):
                promise.set_exception(error)
            self.open.discard(promise)


class ThreadEnvClient(EnvClient):
    """A line to an env copy in another thread."""

    def __init__(self, env: ThreadProxy, patience: Timeouts) -> None:
        self._env, self._patience = env, patience
        self._asked: dict[int, tuple[Request, Future[Step]]] = {}

    def send(self, request: Request, *args: Any) -> None:
        self._asked[args[0]] = request, self._env.send(request, *args)

    def take(self, first_lane: int) -> Step:
        request, asked = self._asked.pop(first_lane)
        seconds = self._patience.of(request, self._env.known)
        wait([asked], seconds)
        if not asked.done():
            raise env_timeout(self._env.name, request, seconds)
        return asked.result()


class Threads:
    """The backend of threads. `deadline`: seconds for an answer."""

    def __init__(self, deadline: float = 600.0) -> None:
        self._patience = timeouts_for(deadline)
        self._copies: list[ThreadProxy] = []

    def launch(self, task: Any, lowering: Lowering) -> list[list[Copy]]:
        plan = lowering.plan
        with_envs = self._patience
        if has_separate_envs(plan):  # time for a policy to tell which of its environments is late
            self._patience = with_envs.twice()
        pieces: list[list[Any]] = []
        made = []
        failures: list[BaseException] = []
        for piece, (_, copies, _) in enumerate(plan.pieces):
            pieces.append([ThreadProxy(copy_name(plan, piece, i), failures) for i in range(copies)])
            self._copies += pieces[-1]
            for i, copy in enumerate(pieces[-1]):
                make, args = worker_factory(task, plan, piece, i)
                made.append(copy.send(MAKE, make, *args))
        self.get(made)
        if has_separate_envs(plan):
            for i, policy in enumerate(pieces[1]):
                links = {
                    e: ThreadEnvClient(pieces[0][e], with_envs) for e in env_copies_of(plan, i)
                }
                policy.worker.connect(links)
        return pieces

    def get(self, promises: Sequence[Any]) -> list[Any]:
        self._wait(promises, len(promises))
        return [p.result() if isinstance(p, Future) else p for p in promises]

    def wait(self, promises: Sequence[Any]) -> list[int]:
        self._wait(promises, 1)
        return [i for i, p in enumerate(promises) if not isinstance(p, Future) or p.done()]

    def _wait(self, promises: Sequence[Any], least: int) -> None:
        """Wait until at least `least` values are there, or one has failed."""
        late = {p for p in promises if isinstance(p, Future)}
        most = len(late) - min(least, len(late))  # that may be missing
        since = time.monotonic()
        while True:
            done = {p for p in late if p.done()}
            for promise in done:
                promise.result()
            late -= done
            since = time.monotonic() if done else since
            if len(late) <= most:
                return
            wait(late, min(1.0, self._patience.usual), FIRST_COMPLETED)
            busy = [copy for copy in self._copies if copy.open]
            seconds = max((self._patience.of(c.at, c.known) for c in busy), default=0.0)
            if busy and time.monotonic() - since > seconds:
                silent = [f"{copy.name}, asked to `{copy.at}`" for copy in busy]
                raise Unresponsive(no_answer(seconds, silent))

    def after_round(self, now: bool = False) -> None:
        """No snapshots: a thread dies only with the driver."""

    def restarts(self) -> Restarts:
        return Restarts()

    def close(self) -> None:
        copies, self._copies = self._copies, []
        for copy in copies:
            copy.stop()
        end = time.monotonic() + _GRACE
        for copy in copies:  # a thread that hangs can't be ended, and must not hold up the others
            copy.join(max(0.0, end - time.monotonic()))
