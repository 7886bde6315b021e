"""The driver's end of a copy in an actor of Ray."""

from __future__ import annotations

import pickle
import time
from collections import deque
from itertools import chain
from typing import Any

from rondel.execution.backends.protocol import Copy
from rondel.execution.backends.ray.pending_calls import PendingCall, Promise
from rondel.execution.backends.ray.worker import Arrived, Receipt, Turn, leaving
from rondel.execution.backends.recovery.request_log import LoggedRequest, RequestLog
from rondel.execution.hostenv.crash_record import Remains
from rondel.execution.requests import Request
from rondel.execution.telemetry.timing import PiggybackedTimings


class RayProxy(Copy):
    """A copy in an actor."""

    def __init__(self, backend: Any, place: tuple[int, int], name: str) -> None:
        self.backend, self.place, self.name = backend, place, name
        self.options: dict[str, Any] = {}  # what its actors ask of Ray
        self.guest = False  # of a range: does it run without the room that it asks for?
        self.recipe = False, b""  # what they are told to be
        self.journal = RequestLog(is_kept=False)
        self.actor: Any = None
        self.arrival: Promise | None = None  # of one that is coming: where it will be
        self.barred, self.pause = 0.0, 0.0  # of one that died while it came: until when it waits
        self.process, self.address, self.node = 0, "", ""  # once they are known
        self.last = ""  # the id of the last actor that came to be in its place
        self.before = Remains()  # of the one before it
        self.open: deque[PendingCall] = deque()  # calls that are not known to be over
        self.turn = Turn(0, 0)  # of the next call
        self.known: set[Request] = set()  # requests that its actor has answered before
        self.busy_since = 0.0  # when it was last heard of, or asked after it had nothing to do
        self.keeping = 0.0  # seconds that it took to give its state, the last time
        self._methods: dict[int, Any] = {}
        self._made = 0  # bytes
        self._said = b""

    def latest_timings(self) -> PiggybackedTimings | None:
        return pickle.loads(self._said) if self._said else None

    @property
    def id(self) -> str:
        return str(self.actor._actor_id.hex())

    def __str__(self) -> str:
        if not self.node:
            return self.name
        return f"{self.name} (process {self.process} on {self.address})"

    def be(self, actor: Any) -> None:
        """From now on it is in this actor."""
        self.actor, self.turn, self._methods, self.known = actor, Turn(0, 0), {}, set()
        self._made, self._said = 0, b""
        self.process, self.address, self.node = 0, "", ""

    def arrive(self, arrived: Arrived) -> None:
        """Its actor is there."""
        self.process, self.address, self.node, self.before = arrived
        self.last = self.id

    def took(self, receipt: Receipt) -> int:
        """A call was answered -> how many bytes were made since the last of which this was said."""
        more, self._made = receipt.made - self._made, receipt.made
        self._said, self.keeping = receipt.seen, receipt.keeping
        return more

    def send(self, request: Request, *args: Any) -> Any:
        ready = (a if isinstance(a, Promise) else leaving(a) for a in args)
        promises = self.ask(request, *ready)
        return promises[0] if len(promises) == 1 else tuple(promises)

    def ask(self, request: Request, *args: Any) -> list[Promise]:
        """The same, with arguments that may leave this process as they are."""
        promises = [Promise() for _ in range(request.results)]
        self.dispatch(LoggedRequest(request, args, promises))
        return promises

    def dispatch(self, asked: LoggedRequest) -> PendingCall:
        """Ask the actor; what it will answer is what was promised."""
        promises = asked.promises
        if promises is None:  # it was answered before; whoever still needs that gets it from here
            lost = self.backend.is_gone(self)
            promises = [made() or Promise() if lost else Promise() for made in asked.made]
            promises = promises or [Promise()]
        n = len(promises)
        if n not in self._methods:
            self._methods[n] = self.actor.do.options(num_returns=n + 1)
        sent = (a.ref if isinstance(a, Promise) else a for a in asked.args)
        call = PendingCall(self, asked, self.turn.number, self.backend.next_order())
        call.done, *refs = self._methods[n].remote(asked.request.name, self.turn, *sent)
        self.turn = self.turn._replace(number=self.turn.number + 1)
        for promise, ref in zip(promises, refs, strict=True):
            promise.call, promise.ref = call, ref
        if not self.open:
            self.busy_since = time.monotonic()
        self.open.append(call)
        return call

    def can_make(self, promise: Promise) -> bool:
        """Would something that it has made be made again, if it was asked all again?"""
        again = chain(self.journal.answered, (call.asked for call in self.open))
        return any(made() is promise for asked in again for made in asked.made)

    def settle(self, call: PendingCall) -> None:
        """A call is over, and so are those before it: a copy answers in order."""
        self.busy_since = time.monotonic()
        while not call.over:
            earlier = self.open.popleft()
            self.known.add(earlier.asked.request)
            self.journal.note(earlier.asked)
            earlier.end()
