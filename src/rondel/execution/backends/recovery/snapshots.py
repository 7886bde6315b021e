"""Keeps the states of copies from time to time, so that what they were asked can be forgotten.

All copies are asked between the same two rounds: then what one has lost another can make again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from rondel.execution.backends.recovery.policy import Keeping, is_due, is_urgent
from rondel.execution.backends.recovery.request_log import RequestLog

_MOST_STATE = 2 * 2**30  # bytes of a copy's state: more is not kept twice


class Snapshots:
    """What is known about messages and states that are kept."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._bytes, self._cost = 0, 0.0
        self._before = 0  # of these bytes, those that came before the states were asked for
        self._deaths = 0
        self._asking: list[tuple[RequestLog, Any, Any]] = []

    @property
    def states(self) -> list[Any]:
        """The states that are on their way."""
        return [state for _, _, state in self._asking]

    @property
    def flags(self) -> list[Any]:
        """Whether each of them is one, or was too large."""
        return [flag for _, flag, _ in self._asking]

    def count(self, nbytes: int) -> None:
        """So many bytes of messages were made, and may be kept."""
        self._bytes += nbytes

    def took(self, seconds: float) -> None:
        """A copy took so long to give its state."""
        self._cost = max(self._cost, seconds)

    def ask_if_due(self, copies: Sequence[Any], now: bool) -> bool:
        """Ask all copies for their states, if it is time to -> must they be waited for?

        So it is if they are wanted `now`, or if there are more messages than may be kept.
        """
        now = now or is_urgent(self._known())
        if now:
            self.abandon()
        if not self._asking and is_due(self._known()):
            self._ask(copies)
        return now

    def _known(self) -> Keeping:
        return Keeping(self._bytes, time.monotonic() - self._last, self._cost)

    def _ask(self, copies: Sequence[Any]) -> None:
        self._cost, self._before, deaths = 0.0, self._bytes, self._deaths
        asking = [
            (copy.journal, *copy.keep(_MOST_STATE))
            for copy in copies
            if copy.journal.protected and copy.journal.is_kept
        ]
        if deaths == self._deaths:  # else someone died of being asked
            self._asking = asking

    def take(self, flags: list[Any]) -> None:
        """All are there: forget what came before them; a copy without one is not protected."""
        if len(flags) != len(self._asking):
            return  # someone died meanwhile
        for (journal, _, state), flag in zip(self._asking, flags, strict=True):
            if flag:
                journal.kept(state)
            else:
                journal.give_up()
        self._asking = []
        self._bytes, self._last = self._bytes - self._before, time.monotonic()

    def abandon(self) -> None:
        """Someone died: what is on its way no longer fits together. Ask again at once."""
        self._asking = []
        self._deaths += 1
        self._last, self._cost = -math.inf, 0.0
