"""How long is waited, and words where nothing can be done about it: in this process.

Copies in processes of their own are started again if an environment takes too long; here only words
are left. It imports no jax.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Container
from typing import Any, NamedTuple

from rondel.execution.telemetry.timing import Meter

START = 60.0  # seconds: imports and compiling have as many, however short a deadline is
_log = logging.getLogger("rondel")
_REMEDY = "In this process nothing can end it: --plan 'actor | learner' --on processes would."


class Timeouts(NamedTuple):
    """Seconds for an answer."""

    usual: float
    first: float  # for the first of its kind: what it takes is perhaps imported and compiled first

    def of(self, request: Any, known: Container[Any]) -> float:
        """For a request to someone who has answered these kinds before."""
        return self.usual if request in known else self.first

    def twice(self) -> Timeouts:
        """For who waits for someone that has so much patience with others."""
        return Timeouts(2 * self.usual, 2 * self.first)


def timeouts_for(deadline: float) -> Timeouts:
    """What a deadline means."""
    return Timeouts(deadline, max(deadline, START))


class HangWarning:
    """Looks from another thread whether environments in this one still answer, until it is over."""

    def __init__(self, env_id: str, meter: Meter, seconds: float) -> None:
        self._env_id, self._meter, self._seconds = env_id, meter, seconds
        self._over = threading.Event()
        threading.Thread(target=self._look, name="rondel-watch", daemon=True).start()

    def _look(self) -> None:
        told = None
        while not self._over.wait(min(1.0, self._seconds / 4)):
            stage, ended, ago = self._meter.newest()
            if stage == "policy" and ago > self._seconds and told != ended:  # then it is env's turn
                told = ended
                _log.warning("%s has taken %.3g s for a step. %s", self._env_id, ago, _REMEDY)

    def end(self) -> None:
        self._over.set()
