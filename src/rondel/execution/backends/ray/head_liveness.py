"""Whether the head of a cluster is there: Ray ends every driver a minute after it has lost it."""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import socket
import time

import ray

from rondel.execution.backends.protocol import Lost

_EVERY = 2.0  # seconds between two looks
_PATIENCE = 20.0  # seconds in which it may come back; Ray's own are 60


class HeadLiveness:
    """The head of the cluster that this process is a driver of.

    One that was never reached from here is none that can be missed: something is in between.
    """

    def __init__(self) -> None:
        self._address = str(ray.get_runtime_context().gcs_address)
        self._looked = time.monotonic()
        self._missed: float | None = None  # since when
        self.gone = False
        self._reached = self._connects(5.0)  # the machine may be busy with what was just started

    def look(self) -> None:
        """Raise `Lost` if it has been away for too long; to look costs next to nothing."""
        if time.monotonic() - self._looked > _EVERY:
            self._is_there()

    def require(self) -> None:
        """Wait until it is there, for as long as it may be away: without it nobody can start."""
        while not self._is_there():
            time.sleep(0.2)

    def _is_there(self) -> bool:
        if not self._reached:
            return True
        self._missed = None if self._connects(1.0) else self._missed or time.monotonic()
        self._looked = now = time.monotonic()
        self.gone = self._missed is not None and now - self._missed > _PATIENCE
        if self.gone:
            raise Lost(
                f"Ray's head at {self._address} is gone, and with it the cluster. Once there is "
                "one again, `rondel resume FOLDER` goes on from the last checkpoint."
            )
        return self._missed is None

    def _connects(self, patience: float) -> bool:
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=patience).close()
        except OSError:
            return False
        return True
