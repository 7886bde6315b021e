"""The policy's end of a connection to an env copy in another process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rondel.execution.backends.protocol import Lost, env_timeout
from rondel.execution.backends.wire.remote_errors import Elsewhere
from rondel.execution.backends.wire.socket_channel import Channel, Gone
from rondel.execution.backends.wire.tcp_link import TcpConnection
from rondel.execution.hostenv.host_envs import EnvClient
from rondel.execution.requests import Request
from rondel.execution.telemetry.timeouts import Timeouts
from rondel.execution.telemetry.timing import TimingSummary
from rondel.types import Step


class RemoteEnvClient(EnvClient):
    """An `EnvClient` over a connection that carries (first lane, step, failure, timing summary).

    The summary comes only now and then; `heard` is the latest. `read` makes a step of what arrived,
    which may be in shared memory.
    """

    def __init__(
        self, line: Channel | TcpConnection, patience: Timeouts, read: Callable[[Any], Step]
    ) -> None:
        self._line, self._patience, self._read = line, patience, read
        self._asked: dict[int, Request] = {}  # by first lane
        self._known: set[Request] = set()  # answered before
        self._answers: dict[int, tuple[Any, bytes | None]] = {}
        self.heard: TimingSummary | None = None

    def send(self, request: Request, *args: Any) -> None:
        self._asked[args[0]] = request
        try:
            self._line.send((request.name, *args))
        except Gone:
            raise Lost(f"{self._line.peer} is gone.") from None

    def take(self, first_lane: int) -> Step:
        seconds = self._patience.of(self._asked[first_lane], self._known)
        end = time.monotonic() + seconds
        while first_lane not in self._answers:
            try:
                left = max(0.0, end - time.monotonic())
                lane, step, failure, said = self._line.receive(left)
            except Gone:
                raise Lost(f"{self._line.peer} is gone.") from None
            except TimeoutError:
                raise env_timeout(self._line.peer, self._asked[first_lane], seconds) from None
            self._answers[lane] = step, failure
            self.heard = said or self.heard
        self._known.add(self._asked[first_lane])
        step, failure = self._answers.pop(first_lane)
        if failure is not None:
            raise Elsewhere(failure)
        return self._read(step)
