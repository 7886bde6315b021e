"""How long is waited, and words where nothing can be done about it: in this process.

Copies in processes of their own are started again if an environment takes too long; here only words
are left. It imports no jax.
"""

from __future__ import annotations

import logging
import threading

from rondel.execution.meter import Meter

START = 60.0  # seconds: imports and compiling have as many, however short a deadline is
_log = logging.getLogger("rondel")
_REMEDY = "In this process nothing can end it: --plan 'actor | learner' --on processes would."


def at_start(deadline: float) -> float:
    """Seconds for what may have to import or compile first."""
    return max(deadline, START)


class Watch:
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
