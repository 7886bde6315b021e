"""The driver's end of a copy in an actor of Ray."""

from __future__ import annotations

import pickle
from collections import deque
from itertools import chain
from typing import Any

from rondel.execution.backends.protocol import Copy
from rondel.execution.backends.ray.pending_calls import PendingCall, Promise
from rondel.execution.backends.ray.worker import Arrived, Receipt, Turn, leaving
from rondel.execution.backends.recovery import events as ev
from rondel.execution.backends.recovery.request_log import LoggedRequest, RequestLog
from rondel.execution.hostenv.crash_record import Remains
from rondel.execution.requests import Request
from rondel.execution.telemetry.timing import PiggybackedTimings


class RayProxy(Copy):
    """A copy in an actor."""

    def __init__(self, driver: Any, index: int, place: tuple[int, int], name: str) -> None:
        self.driver, self.index, self.place, self.name = driver, index, place, name
        self.options: dict[str, Any] = {}  # what its actors ask of Ray
        self.ranged = False  # is its piece a range of copies, `actor*4..16`?
        self.borrows = False  # of a range: it runs without the resources it asks for
        self.packed = False, b""  # does its worker need jax, and the worker as bytes
        self.log = RequestLog(has_snapshots=False)
        self.actor: Any = None
        self.arrival: Promise | None = None  # of where it is, while the run does not wait for it
        self.process, self.address, self.node = 0, "", ""  # once it has arrived
        self.last = ""  # the id of the actor that arrived last
        self.before = Remains()  # what the actor before that one left behind
        self.open: deque[PendingCall] = deque()  # calls that are not known to be over
        self.turn = Turn(0, 0)  # of the next call
        self._methods: dict[int, Any] = {}  # of the actor, by the number of results
        self._made = 0  # bytes of its results, by the last receipt
        self._timings = b""

    def latest_timings(self) -> PiggybackedTimings | None:
        return pickle.loads(self._timings) if self._timings else None

    @property
    def id(self) -> str:
        return str(self.actor._actor_id.hex())

    def __str__(self) -> str:
        if not self.node:
            return self.name
        return f"{self.name} (process {self.process} on {self.address})"

    def attach(self, actor: Any) -> None:
        """From now on it is in this actor."""
        self.actor, self.turn, self._methods = actor, Turn(0, 0), {}
        self._made, self._timings = 0, b""
        self.process, self.address, self.node = 0, "", ""

    def arrive(self, arrived: Arrived) -> None:
        """Its actor is there."""
        self.process, self.address, self.node, self.before = arrived
        self.last, self.arrival = self.id, None

    def send(self, request: Request, *args: Any) -> Any:
        ready = (a if isinstance(a, Promise) else leaving(a) for a in args)
        promises = self.ask(request, *ready)
        return promises[0] if len(promises) == 1 else tuple(promises)

    def ask(self, request: Request, *args: Any) -> list[Promise]:
        """Send a request whose arguments may leave this process as they are."""
        promises = [Promise() for _ in range(request.results)]
        self.dispatch(LoggedRequest(request, args, promises))
        return promises

    def dispatch(self, asked: LoggedRequest) -> None:
        """Send a request to the actor, for the first time or again."""
        promises = asked.promises
        if promises is None:  # it was answered before; whoever still needs that gets it from here
            lost = self.name in self.driver.homeless
            promises = [made() or Promise() if lost else Promise() for made in asked.results]
            promises = promises or [Promise()]
        n = len(promises)
        if n not in self._methods:
            self._methods[n] = self.actor.do.options(num_returns=n + 1)
        sent = (a.ref if isinstance(a, Promise) else a for a in asked.args)
        call = PendingCall(self, asked, self.turn.number, self.driver.next_order())
        call.done, *refs = self._methods[n].remote(asked.request.name, self.turn, *sent)
        self.turn = self.turn._replace(number=self.turn.number + 1)
        for promise, ref in zip(promises, refs, strict=True):
            promise.call, promise.ref = call, ref
        self.open.append(call)
        self.driver.recovery.report(ev.Sent, self.index, asked.request)

    def can_make(self, promise: Promise) -> bool:
        """Would replaying its log make this result again?"""
        again = chain(self.log.answered, (call.asked for call in self.open))
        return any(made() is promise for asked in again for made in asked.results)

    def settle(self, call: PendingCall, receipt: Receipt) -> None:
        """A call is over, and so are those before it: a copy answers in order."""
        nbytes, self._made = receipt.made - self._made, receipt.made
        self._timings = receipt.seen
        while not call.over:
            earlier = self.open.popleft()
            asked, again = earlier.asked, earlier.asked.promises is None
            self.log.note(asked)
            earlier.end()
            answered = (self.index, asked.request, again, nbytes, receipt.keeping)
            self.driver.recovery.report(ev.Replied, *answered)
            nbytes = 0
