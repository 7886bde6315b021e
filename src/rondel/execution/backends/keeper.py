"""Keeps the states of copies from time to time, so that what they were asked can be forgotten.

All copies are asked between the same two rounds: then what one has lost another can make again.
"""

from __future__ import annotations

import time
from typing import Any

from rondel.execution.backends.journal import Asked, Journal
from rondel.execution.supervise import Keeping, is_due

_MOST_STATE = 2 * 2**30  # bytes of a copy's state: more is not kept twice


class Keeper:
    """What is known about messages and states that are kept."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._bytes, self._cost = 0, 0.0
        self._asking: list[tuple[Journal, Any]] = []

    @property
    def asked(self) -> list[Any]:
        """The states that are on their way."""
        return [state for _, state in self._asking]

    def count(self, asked: Asked, seconds: float, nbytes: int) -> None:
        """A call was answered: so many bytes of messages are kept for it."""
        self._bytes += nbytes
        if asked.request == "keep":
            self._cost = max(self._cost, seconds)

    def ask_if_due(self, copies: list[Any]) -> None:
        """Ask all copies for their states, if it is time to."""
        since = time.monotonic() - self._last
        if self._asking or not is_due(Keeping(self._bytes, since, self._cost)):
            return
        self._cost = 0.0
        self._asking = [
            (copy.journal, copy.call("keep", _MOST_STATE))
            for copy in copies
            if copy.journal.protected and copy.journal.is_kept
        ]

    def take(self, are_states: list[bool]) -> None:
        """All are there: forget what came before them; a copy without one is not protected."""
        for (journal, state), is_state in zip(self._asking, are_states, strict=True):
            if is_state:
                journal.kept(state)
            else:
                journal.give_up()
        self._asking = []
        self._bytes, self._last = 0, time.monotonic()

    def abandon(self) -> None:
        """Someone died: what is on its way no longer fits together. Ask again at once."""
        self._asking = []
        self._last, self._cost = 0.0, 0.0
