"""Whether the two parts of Ray that a driver needs are there: the head, and its own raylet.

Ray ends a driver that has lost one of them, with exit status 1 and no sentence of ours: ten seconds
to a minute later. So the driver looks for itself, whenever it waits and once per round.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import socket
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import ray

from rondel.execution.backends.protocol import Lost

_HEAD_EVERY, _NODE_EVERY = 2.0, 1.0  # seconds between two looks
_HEAD_MAY_BE_AWAY = 20.0  # seconds; Ray itself gives it 60
_RESUME = "Once there is one again, `rondel resume FOLDER` goes on from the last checkpoint."
_Method = TypeVar("_Method", bound=Callable[..., Any])


def raises_if_node_is_gone(method: _Method) -> _Method:
    """A method that asks Ray: a raylet that has just ended is a broken pipe to it."""

    @wraps(method)
    def guarded(self: Any, *args: Any, **more: Any) -> Any:
        try:
            return method(self, *args, **more)
        except OSError:
            self.liveness.require_node()
            raise

    return cast(_Method, guarded)


class Liveness:
    """The head of the cluster and the driver's own node.

    One that could never be reached from here, through a firewall say, is never called gone.
    """

    def __init__(self) -> None:
        context = ray.get_runtime_context()
        self._head = str(context.gcs_address)
        host, _, port = self._head.rpartition(":")
        self._head_at = host.strip("[]"), int(port)
        mine = context.get_node_id()
        node = next(node for node in ray.nodes() if node["NodeID"] == mine)
        self._node_at = str(node["NodeManagerAddress"]), int(node["NodeManagerPort"])
        self._head_looked = self._node_looked = time.monotonic()
        self._head_missed: float | None = None  # since when
        self.head_is_gone = self.node_is_gone = False
        self._head_reached = _connects(self._head_at, 5.0)  # a machine that starts Ray is busy
        self._node_reached = not _refuses(self._node_at)

    def look(self) -> None:
        """Raise `Lost` if one of them is gone; between looks it costs nothing."""
        now = time.monotonic()
        if now - self._head_looked > _HEAD_EVERY:
            self._head_is_there()
        if now - self._node_looked > _NODE_EVERY:
            self.require_node()

    def require(self) -> None:
        """Return once both are there, which starting an actor needs, or raise `Lost`."""
        while not self._head_is_there():
            time.sleep(0.2)
        self.require_node()

    def require_node(self) -> None:
        """Raise `Lost` if the driver's node is gone. It never comes back: a new one is another."""
        self.node_is_gone = self.node_is_gone or (self._node_reached and _refuses(self._node_at))
        self._node_looked = time.monotonic()
        if self.node_is_gone:
            host, port = self._node_at
            raise Lost(
                f"The driver's own node of Ray is gone: its raylet at {host}:{port} was killed, or "
                f"has ended. {_RESUME}"
            )

    def _head_is_there(self) -> bool:
        if not self._head_reached:
            return True
        there = _connects(self._head_at, 1.0)
        self._head_missed = None if there else self._head_missed or time.monotonic()
        self._head_looked = now = time.monotonic()
        missed = self._head_missed
        self.head_is_gone = missed is not None and now - missed > _HEAD_MAY_BE_AWAY
        if self.head_is_gone:
            raise Lost(f"Ray's head at {self._head} is gone, and with it the cluster. {_RESUME}")
        return there


class Unwatched:
    """The liveness of a cluster that is joined from outside: neither part can be reached."""

    head_is_gone = node_is_gone = False

    def look(self) -> None:
        """Nothing to look at."""

    require = require_node = look


def _connects(at: tuple[str, int], seconds: float) -> bool:
    try:
        socket.create_connection(at, timeout=seconds).close()
    except OSError:
        return False
    return True


def _refuses(at: tuple[str, int]) -> bool:
    """Does nobody listen there? A busy one is slow to answer, which is something else."""
    try:
        socket.create_connection(at, timeout=1.0).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
