"""The actor of a copy: it serves requests one after the other."""

from __future__ import annotations

import os
import pickle
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from rondel.execution.backends.serve_request import separate_results, serve_request
from rondel.execution.backends.wire.env_client import RemoteEnvClient
from rondel.execution.backends.wire.remote_errors import Elsewhere, pack
from rondel.execution.backends.wire.tcp_link import Number, TcpConnection, TcpListener
from rondel.execution.backends.wire.worker_spec import jax_settings, unpack_worker
from rondel.execution.hostenv import crash_record
from rondel.execution.hostenv.partition import LaneShare
from rondel.execution.requests import CONNECT, KEEP, LISTEN, MAKE, Request, request_named
from rondel.execution.telemetry.timeouts import Timeouts
from rondel.execution.telemetry.timing import TimingSummary

# What a process sets before JAX starts, and what a run's last bits depend on.
_SETTINGS = re.compile(r"(JAX|XLA)_\w+|(PJRT_|RONDEL_)?NPROC|XDG_CACHE_HOME")
_OWN = (MAKE, LISTEN, CONNECT)  # requests to the actor itself, not to its worker


class Turn(NamedTuple):
    """The place of a request among all that a copy is sent.

    A request whose arguments are lost never arrives, and those after it must not be answered then.
    All of them are sent again, in another epoch.
    """

    epoch: int
    number: int


class Receipt(NamedTuple):
    """The small result that comes with every answer."""

    made: int  # bytes, of all results so far
    seen: bytes  # the latest timings, pickled once for many answers
    keeping: float  # seconds that it took to give its state, the last time


class OutOfTurn(Exception):
    """A request before this one never arrived."""

    def __init__(self, name: str, asked: int, at: int) -> None:
        super().__init__(name, asked, at)
        self.at = at  # the number of the first that did not come

    def __str__(self) -> str:
        name, asked, at = self.args
        return f"{name} got request {asked} but expected {at}"


class Here(NamedTuple):
    """Where an actor is."""

    address: str  # at which this machine can be reached
    node: str  # the cluster's name for it
    folder: str  # of this machine: what is in it outlives the actor
    actor: str  # its own name there


class Arrived(NamedTuple):
    """What a new actor reports of itself, and of the one that it replaces."""

    process: int
    address: str
    node: str
    before: crash_record.Remains


class Worker:
    """Holds the worker of a copy and serves its requests. It imports no jax by itself."""

    def __init__(self, where: Callable[[], Here]) -> None:
        self._name, self._where = "", where
        self._worker: Any = None
        self._jax = False
        self._transport: tuple[Any, ...] = ()  # what brings arrays in and out, if there are any
        self._failure: Elsewhere | None = None
        self._exchange: TcpListener | None = None
        self._crash_record: crash_record.File | None = None
        self._epoch, self._number = 0, 0  # of the request that comes next
        self._bytes = 0  # that it has made
        self._keeping = 0.0
        self._seen = b""

    def make(
        self, name: str, before: str, surroundings: dict[str, Any], needs_jax: bool, packed: bytes
    ) -> Arrived:
        """Make the worker, in surroundings like the driver's, in the place of actor `before`."""
        self._name, self._jax = name, needs_jax
        self._transport = (_receive, _reply) if needs_jax else ()
        os.environ.update(surroundings["environ"])
        sys.path += [entry for entry in surroundings["path"] if entry not in sys.path]
        with suppress(OSError):  # another machine may not have it
            os.chdir(surroundings["folder"])
        self._worker = unpack_worker(packed, surroundings["settings"])
        here = self._where()
        self._crash_record = crash_record.File(_page_of(here.actor, here.folder))
        if hasattr(self._worker, "record"):
            self._worker.record(self._crash_record.recorder)
        left = (
            crash_record.take(_page_of(before, here.folder)) if before else crash_record.Remains()
        )
        return Arrived(os.getpid(), here.address, here.node, left)

    def listen(self) -> Number:
        """Let policies connect to the environments that are here."""
        self._exchange = TcpListener(self._where().address, self._stepped)
        return self._exchange.number

    def _stepped(self, *asked: Any) -> tuple[Any, TimingSummary | None]:
        """An answer to a policy, and now and then a timing summary."""
        name, *args = asked
        step, meter = self.ask(request_named(name), *args), self._worker.meter
        return step, meter.summary() if meter.is_due() else None

    def connect(self, envs: Mapping[int, tuple[str, Number]], patience: Timeouts) -> None:
        """Connect the policy with its environments' actors."""
        lines = {e: TcpConnection(*at) for e, at in envs.items()}
        links = {e: RemoteEnvClient(line, patience, lambda step: step) for e, line in lines.items()}
        self._worker.connect(links)

    def do(self, name: str, turn: Turn, *args: Any) -> tuple[Any, ...]:
        """A receipt and the results of a request, if it is its turn."""
        request = request_named(name)
        epoch, number = turn
        if number != self._number or epoch < self._epoch:
            raise OutOfTurn(self._name, number, self._number)
        self._epoch, self._number = epoch, number + 1
        began = time.monotonic()
        result = self.ask(request, *args)
        if request is KEEP:
            self._keeping = time.monotonic() - began
        self._bytes += _bytes(result) if self._jax and request is not KEEP else 0
        if self._worker is not None and (seen := self._worker.timings_if_due()):
            self._seen = pickle.dumps(seen)
        receipt = Receipt(self._bytes, self._seen, self._keeping)
        return receipt, *separate_results(request, result)

    def ask(self, request: Request, *args: Any) -> Any:
        """The result of a request. After a failure every request raises that failure."""
        if self._failure is not None:
            raise self._failure
        try:
            if request in _OWN:
                return getattr(self, request.name)(*args)
            return serve_request(self._worker, request, args, *self._transport)
        except Exception as error:
            self._failure = Elsewhere(pack(error, self._name))
        raise self._failure

    def close(self) -> None:
        """Free what the environments hold."""
        worker, self._worker = self._worker, None
        if self._crash_record is not None:
            self._crash_record.close()
        try:
            if self._exchange is not None:
                self._exchange.close()
            if worker is not None:
                worker.close()
        except Exception as error:
            raise Elsewhere(pack(error, self._name)) from None

    def end(self) -> None:
        """End this process, where the cluster can't."""
        os._exit(0)


def _page_of(actor: str, folder: str) -> Path:
    return Path(folder, f"rondel-crash-{actor}")


def _bytes(tree: Any) -> int:
    import jax

    return sum(getattr(x, "nbytes", 0) for x in jax.tree.leaves(tree))


def surroundings() -> dict[str, Any]:
    """What other processes need to be like this one: import paths, settings of JAX."""
    return {
        "environ": {k: v for k, v in os.environ.items() if _SETTINGS.fullmatch(k)},
        "path": [os.path.abspath(entry) for entry in sys.path],
        "folder": os.getcwd(),
        "settings": jax_settings(),
    }


def leaving(tree: Any) -> Any:
    """A tree as it may leave the process: NumPy arrays in place of JAX's."""
    from rondel.execution.stages.task import on_host

    return tree if _is_small(tree) else on_host(tree)


def _arriving(tree: Any) -> Any:
    """A tree from another process, copied into memory of our own."""
    from rondel.execution.stages.task import to_device

    return tree if _is_small(tree) else to_device(tree)


def _receive(args: Sequence[Any]) -> tuple[list[Any], int]:
    return [_arriving(arg) for arg in args], 0


def _reply(result: Any) -> tuple[Any, int]:
    result = leaving(result)
    return result, _bytes(result)


def _is_small(arg: Any) -> bool:
    """Plain values stay as they are: to jax an array is of another type than an int."""
    return arg is None or isinstance(arg, int | float | str | LaneShare)
