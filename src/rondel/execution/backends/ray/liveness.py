"""Whether the parts of Ray that a driver needs are alive: the head, and its own node.

Without them Ray's code in the driver ends the process, with `_Exit(1)` and no sentence: a minute
after the head was lost, and once it hears that its node is dead, if an object of the driver was
there. Of a killed raylet it hears after 15 s; but one of whose agents was killed says goodbye
itself, within 0.1 s. So a thread looks, and the driver ends with a sentence before Ray ends it.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import ray
from ray.exceptions import RayError

from rondel.execution.backends.protocol import Lost

_EVERY = 1.0  # seconds between two looks
_HEAD_MAY_BE_AWAY = 20.0  # seconds; Ray itself gives it 60
_GRACE = 5.0  # seconds for the driver's thread to raise the sentence, before the process ends
_STATUS = 2  # of a request that can't be met
_AGENTS = ("dashboard/agent.py", "runtime_env/agent/main.py")
_GO_ON = "To continue: `rondel resume FOLDER`."
_RESUME = "To continue, once Ray runs again: `rondel resume FOLDER`."
_Method = TypeVar("_Method", bound=Callable[..., Any])


def in_sentences(method: _Method) -> _Method:
    """A method of a backend that asks Ray, whose errors become `Lost`.

    A raylet that has just ended is a broken pipe, an OSError, as the user's own code may raise.
    """

    @wraps(method)
    def translated(self: Any, *args: Any, **more: Any) -> Any:
        try:
            return method(self, *args, **more)
        except RayError as error:
            failure = error
        except OSError:
            self.liveness.require_node()
            raise
        self.liveness.require()
        raise Lost(f"Ray failed: {str(failure).splitlines()[0].rstrip('.')}. {_GO_ON}")

    return cast(_Method, translated)


class Raylet(NamedTuple):
    """The processes of the driver's own node, as far as they can be seen from here."""

    pid: int = 0
    agents: tuple[int, ...] = ()
    ours: tuple[int, ...] = ()  # the head and the raylet, if they were started for this run


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
        self._head_missed: float | None = None  # since when
        self.head_is_gone = self.node_is_gone = False
        self._head_reached = _connects(self._head_at, 5.0)  # a machine that starts Ray is busy
        self._node_reached = not _refuses(self._node_at)
        self._over = threading.Event()  # the driver has heard of it, or is closed
        self.raylet = Raylet()

    def watch(self, raylet: Raylet) -> None:
        """Look from a thread, until `end`."""
        self.raylet = raylet
        run = threading.Thread(target=self._watch, args=(raylet,), name="rondel-ray", daemon=True)
        run.start()

    def look(self) -> None:
        """Raise `Lost` if the thread has found that one is gone; this costs nothing."""
        if sentence := self._sentence():
            self._over.set()
            raise Lost(sentence)

    def require(self) -> None:
        """Return once both are there, which starting an actor needs, or raise `Lost`."""
        while not self._head_is_there():
            self.look()
            time.sleep(0.2)
        self.require_node()

    def require_node(self) -> None:
        """Raise `Lost` if the driver's node is gone. It never comes back: a new one is another."""
        self._look_at_node()
        self.look()

    def end(self) -> None:
        """The run is over."""
        self._over.set()

    def _sentence(self) -> str:
        if self.node_is_gone:
            host, port = self._node_at
            return (
                f"The driver's own node of Ray is gone: the raylet at {host}:{port}, or one of "
                f"its agents, has died. {_RESUME}"
            )
        if self.head_is_gone:
            return f"Ray's head at {self._head} is gone, and with it the cluster. {_RESUME}"
        return ""

    def _look_at_node(self) -> None:
        self.node_is_gone = self.node_is_gone or (self._node_reached and _refuses(self._node_at))

    def _head_is_there(self) -> bool:
        there = not self._head_reached or _connects(self._head_at, 1.0)
        missed = self._head_missed = None if there else self._head_missed or time.monotonic()
        self.head_is_gone = missed is not None and time.monotonic() - missed > _HEAD_MAY_BE_AWAY
        return there

    def _watch(self, raylet: Raylet) -> None:
        died, agents = select.poll(), set()
        with ExitStack() as files:
            for pid in filter(None, (raylet.pid, *raylet.agents)):
                with suppress(OSError):  # it has ended by now
                    died.register(fd := os.pidfd_open(pid), select.POLLIN)
                    files.callback(os.close, fd)
                    agents |= {fd} if pid != raylet.pid else set()
            while not self._over.is_set() and self._look_once(died, agents, raylet.ours):
                pass

    def _look_once(self, died: select.poll, agents: set[int], ours: Iterable[int]) -> bool:
        """Wait for a second, or until something has ended; False if the program has ended Ray."""
        ended = {fd for fd, _ in died.poll(_EVERY * 1000)}
        if not ray.is_initialized():
            return False
        patience = _GRACE
        if ended:
            self.node_is_gone = True
            if ended & agents:  # the raylet says goodbye now, and the head tells the driver
                patience = 0.0
                for pid in ours:
                    patience = _GRACE
                    with suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
        else:
            self._look_at_node()
            self._head_is_there()
        if self._sentence() and not self._over.wait(patience) and ray.is_initialized():
            with suppress(OSError):
                os.write(2, f"rondel: {self._sentence()}\n".encode())
            os._exit(_STATUS)
        return True


class Unwatched:
    """The liveness of a cluster that is joined from outside: neither part can be reached."""

    head_is_gone = node_is_gone = False
    raylet = Raylet()

    def look(self) -> None:
        """There is nothing to look at."""

    require = require_node = end = look


def raylet_of_driver(started: bool) -> Raylet:
    """Find the processes of the driver's node, by the raylet's socket."""
    node: Any = ray._private.worker._global_node
    heads = node.all_processes.get("gcs_server", []) if started else []
    wanted = f"--raylet_socket_name={node.raylet_socket_name}"
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        if wanted in _arguments(command):
            pid = int(command.parent.name)
            children = [
                child
                for tasks in Path(f"/proc/{pid}/task").glob("*/children")
                for child in tasks.read_text().split()
            ]
            agents = [int(c) for c in children if _is_agent(_arguments(Path(f"/proc/{c}/cmdline")))]
            ours = (*(head.process.pid for head in heads), pid) if started else ()
            return Raylet(pid, tuple(agents), ours)
    return Raylet()


def _arguments(command: Path) -> list[str]:
    try:
        return command.read_text(errors="replace").split("\0")
    except OSError:  # it has ended
        return []


def _is_agent(arguments: list[str]) -> bool:
    titled = arguments[:1] and arguments[0].startswith("ray::") and "Agent" in arguments[0]
    return bool(titled) or any(one.endswith(_AGENTS) for one in arguments)


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
