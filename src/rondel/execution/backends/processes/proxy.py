"""The driver's end of a copy in a process."""

from __future__ import annotations

import mmap
from collections import deque
from typing import Any

from rondel.execution.backends.processes.fork_server import ForkServer
from rondel.execution.backends.processes.shared_memory import Message, Place
from rondel.execution.backends.processes.worker import Start
from rondel.execution.backends.protocol import Copy
from rondel.execution.backends.recovery.request_log import LoggedRequest, RequestLog
from rondel.execution.backends.wire.socket_channel import Channel
from rondel.execution.hostenv import crash_record
from rondel.execution.requests import Request
from rondel.execution.telemetry.timing import PiggybackedTimings


class Promise:
    """The result of a request; once it is there, it lies in the arena of its copy."""

    __slots__ = ("message", "owner")

    def __init__(self, owner: ProcessProxy) -> None:
        self.owner = owner
        self.message: Message | None = None

    def keep(self, message: Message) -> None:
        """It is there."""
        self.message = message
        self.owner.live.update(place for place in message.places if place[1])

    def __del__(self) -> None:
        if self.message is not None:  # perhaps in another thread, by a collection of garbage
            self.owner.dropped.append(self.message.places)


class ProcessProxy(Copy):
    """The driver's end of a copy."""

    def __init__(self, backend: Any, piece: int, copy: int, start: Start, make: Any) -> None:
        self.number, self.name, self.piece, self.copy = start.me, start.name, piece, copy
        self.index = self.number - 1  # in the plan; arena 0 is the driver's
        self.start, self.make = start, make
        self.packed = b""  # its worker, packed
        self.log = RequestLog(has_snapshots=False)
        self.live: dict[int, int] = {}  # places of its arena that are promised: offset and bytes
        self.dropped: deque[tuple[Place, ...]] = deque()  # of promises that were deleted
        self.done_with: list[Place] = []  # of its arena, free again: sent with the next request
        self.lent: dict[int, list[Place]] = {}  # of the driver's arena, by the call that reads it
        self.page = mmap.mmap(-1, crash_record.SIZE)
        self.channel: Channel
        self.fork_server: ForkServer
        self.pid = 0
        self.timings: PiggybackedTimings | None = None
        self._backend = backend

    @property
    def full_name(self) -> str:
        return f"{self.name} (process {self.pid})"

    def hang_up(self) -> None:
        """Close the connection to a process, which then ends."""
        self.channel.close()
        self.page.close()

    def drain(self) -> None:
        """Note which results nobody reads any more."""
        for _ in range(len(self.dropped)):
            for place in self.dropped.popleft():
                if place[1]:
                    del self.live[place[0]]
                    self.done_with.append(place)

    def latest_timings(self) -> PiggybackedTimings | None:
        return self.timings

    def send(self, request: Request, *args: Any) -> Any:
        self._backend.raise_if_over()
        promises = [Promise(self) for _ in range(request.results)]
        self.log.unsent.append(LoggedRequest(request, args, promises))
        self._backend.send_ready(self)
        return promises[0] if len(promises) == 1 else tuple(promises)
