"""How long an answer may take, and the warning about a hung environment in the driver itself.

Copies in processes of their own are replaced when they are late; the driver's own environments can
only be named. It imports no jax.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Container, Iterable
from typing import Any, NamedTuple

from rondel.execution.telemetry.timing import Meter

START = 60.0  # seconds that anything may take the first time, since it is imported or compiled
STOPPED = 5.0  # seconds after which a process that someone stopped counts as hung
_log = logging.getLogger("rondel")


class Timeouts(NamedTuple):
    """Seconds for an answer."""

    usual: float
    first: float  # for the first of its kind

    def of(self, request: Any, answered: Container[Any]) -> float:
        """Seconds for a request to a copy that has answered these kinds before."""
        return self.usual if request in answered else self.first

    def twice(self) -> Timeouts:
        """For a copy that itself waits this long for others, and then names the late one."""
        return Timeouts(2 * self.usual, 2 * self.first)


def timeouts_for(deadline: float) -> Timeouts:
    """The timeouts of a run with this --deadline."""
    return Timeouts(deadline, max(deadline, START))


def no_answer(seconds: float, silent: Iterable[str]) -> str:
    """The sentence for copies that are late."""
    return (
        f"No answer within {seconds:g} s from {'; '.join(silent)}. It hangs, or needs a longer "
        "--deadline."
    )


class HangWarning:
    """Warns, from a thread, of an environment that hangs in the driver's own thread."""

    def __init__(self, env_id: str, meter: Meter, seconds: float) -> None:
        self._env_id, self._meter, self._seconds = env_id, meter, seconds
        self._over = threading.Event()
        threading.Thread(target=self._look, name="rondel-watch", daemon=True).start()

    def _look(self) -> None:
        warned = None
        while not self._over.wait(min(1.0, self._seconds / 4)):
            stage, ended, ago = self._meter.newest()
            # the policy ended last, so it is the environment's turn
            if stage == "policy" and ago > self._seconds and warned != ended:
                warned = ended
                _log.warning(
                    "%s has taken %.3g s for a step and can't be ended in the driver's process. "
                    "Use --plan 'actor | learner' --on processes.",
                    self._env_id,
                    ago,
                )

    def end(self) -> None:
        self._over.set()
