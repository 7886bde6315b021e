"""A line between a policy copy and an env copy on any two machines: a socket, and no one else.

A call of an actor takes about a millisecond here, a message over a socket a twentieth of it, and a
policy sends one to each of its environments in every step. Who calls must know the line's secret.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, NamedTuple

from rondel.execution.backend import Late, Lost
from rondel.execution.backends.failure import Elsewhere
from rondel.types import Step


class Number(NamedTuple):
    """Where an env copy can be called."""

    host: str
    port: int
    secret: bytes


class Exchange:
    """The env copy's end: it answers every policy copy that calls, one question at a time.

    `answer(request, first_lane, what)` gives the step, or raises `Elsewhere`.
    """

    def __init__(self, host: str, answer: Callable[[str, int, Any], Any]) -> None:
        secret = secrets.token_bytes(32)
        self._listener = Listener(("0.0.0.0", 0), authkey=secret)
        self.number = Number(host, self._listener.address[1], secret)
        self._answer = answer
        self._turn = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                line = self._listener.accept()
                threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: Connection) -> None:
        with suppress(EOFError, OSError), line:
            while True:
                request, first_lane, what = line.recv()
                try:
                    with self._turn:
                        answer = self._answer(request, first_lane, what)
                except Elsewhere as failure:
                    answer = failure
                line.send((first_lane, answer))

    def close(self) -> None:
        """Take no more calls; whoever is on a line keeps it until this process ends."""
        self._listener.close()


class SocketLink:
    """The policy copy's end."""

    def __init__(self, name: str, number: Number, patience: float) -> None:
        self._name, self._patience = name, patience
        self._answers: dict[int, Any] = {}
        try:
            self._line = Client((number.host, number.port), authkey=number.secret)
        except (OSError, EOFError) as error:
            raise Lost(
                f"{name} can't be reached at {number.host}:{number.port} ({error}): nodes must be "
                "able to connect to each other."
            ) from None

    def reset(self, first_lane: int, again: int) -> None:
        self._ask("reset", first_lane, again)

    def step(self, first_lane: int, action: Any) -> None:
        self._ask("step", first_lane, action)

    def _ask(self, request: str, first_lane: int, what: Any) -> None:
        try:
            self._line.send((request, first_lane, what))
        except OSError:
            raise Lost(f"{self._name} died.") from None

    def take(self, first_lane: int) -> Step:
        while first_lane not in self._answers:
            try:
                if not self._line.poll(self._patience):
                    raise Late(
                        f"{self._name} did not answer its policy for {self._patience:g} s. It "
                        "hangs, or needs a longer deadline."
                    )
                lane, answer = self._line.recv()
                self._answers[lane] = answer
            except (EOFError, OSError):
                raise Lost(f"{self._name} died.") from None
        answer = self._answers.pop(first_lane)
        if isinstance(answer, Elsewhere):
            raise answer
        return answer
