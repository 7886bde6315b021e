"""Whether the driver's own node of Ray is there: without it Ray soon ends the driver."""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import socket
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import ray

from rondel.execution.backends.protocol import Lost

_EVERY = 1.0  # seconds between two looks; Ray notices after some ten, and ends the process


_Method = TypeVar("_Method", bound=Callable[..., Any])


def by_the_raylet(method: _Method) -> _Method:
    """A backend's method that asks Ray: it breaks a pipe if the raylet is gone just now."""

    @wraps(method)
    def told(self: Any, *args: Any, **more: Any) -> Any:
        try:
            return method(self, *args, **more)
        except OSError:
            for needed in self._needed:
                if isinstance(needed, NodeLiveness):
                    needed.require()
            raise

    return cast(_Method, told)


class NodeLiveness:
    """The node that this process is a driver on. It never comes back: a new one is another.

    One that was never reached from here is none that can be missed, as with the head.
    """

    def __init__(self) -> None:
        mine = ray.get_runtime_context().get_node_id()
        node = next(node for node in ray.nodes() if node["NodeID"] == mine)
        self._address = str(node["NodeManagerAddress"]), int(node["NodeManagerPort"])
        self._looked = time.monotonic()
        self.gone = False
        self._reached = not self._refuses()

    def look(self) -> None:
        """Raise `Lost` if it is gone; to look costs next to nothing."""
        if time.monotonic() - self._looked > _EVERY:
            self.require()

    def require(self) -> None:
        """The same, of now."""
        self.gone = self.gone or (self._reached and self._refuses())
        self._looked = time.monotonic()
        if self.gone:
            host, port = self._address
            raise Lost(
                f"The driver's own node of Ray is gone: its raylet at {host}:{port} was killed, or "
                "has ended. Once there is one again, `rondel resume FOLDER` goes on from the last "
                "checkpoint."
            )

    def _refuses(self) -> bool:
        """Does nobody listen there? A busy one is slow to answer, which is something else."""
        try:
            socket.create_connection(self._address, timeout=1.0).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return False
