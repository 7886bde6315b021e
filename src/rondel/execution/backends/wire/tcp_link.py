"""TCP connections between a policy copy and its env copies, on any two machines.

A call of an actor takes about a millisecond, a message over a socket a twentieth of that, and a
policy sends one to each of its environments in every step. A client must know the secret.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, NamedTuple

from rondel.execution.backends.protocol import Lost
from rondel.execution.backends.wire.remote_errors import Elsewhere
from rondel.execution.backends.wire.socket_channel import Gone

_LAST_ANSWER = 2.0  # seconds for a step that is under way when a copy is closed


class Number(NamedTuple):
    """Where an env copy can be reached."""

    host: str
    port: int
    secret: bytes


class TcpListener:
    """The env copy's end: it answers every policy copy that connects, one request at a time.

    `answer(request, first_lane, ...)` returns the step and, now and then, a timing summary, or
    raises `Elsewhere`.
    """

    def __init__(self, host: str, answer: Callable[..., tuple[Any, Any]]) -> None:
        secret = secrets.token_bytes(32)
        self._listener = Listener(("0.0.0.0", 0), authkey=secret)
        self.number = Number(host, self._listener.address[1], secret)
        self._answer = answer
        self._turn = threading.Lock()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                line = self._listener.accept()
            except (OSError, EOFError, AuthenticationError):
                time.sleep(0.05)  # a stranger without the secret, or the listener was closed
                continue
            threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: Connection) -> None:
        with suppress(EOFError, OSError), line:
            while True:
                request, first_lane, *rest = line.recv()
                step, said, failure = None, None, None
                try:
                    with self._turn:
                        step, said = self._answer(request, first_lane, *rest)
                except Elsewhere as error:
                    failure = error.packed
                line.send((first_lane, step, failure, said))

    def close(self) -> None:
        """Accept no more connections, and let the answer under way be finished.

        Open connections last until this process ends.
        """
        self._closed = True
        self._listener.close()
        self._turn.acquire(timeout=_LAST_ANSWER)  # and never given back


class TcpConnection:
    """The policy copy's end."""

    def __init__(self, peer: str, number: Number) -> None:
        self.peer = peer
        try:
            self._line = Client((number.host, number.port), authkey=number.secret)
        except (OSError, EOFError) as error:
            raise Lost(
                f"{peer} can't be reached at {number.host}:{number.port} ({error}): nodes must be "
                "able to connect to each other."
            ) from None

    def send(self, message: Any) -> None:
        try:
            self._line.send(message)
        except OSError:
            raise Gone from None

    def receive(self, timeout: float) -> Any:
        try:
            if not self._line.poll(timeout):
                raise TimeoutError
            return self._line.recv()
        except (EOFError, ConnectionError):
            raise Gone from None
