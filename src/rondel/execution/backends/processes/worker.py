"""The main loop of a copy's process. It imports jax only if its worker does.

Requests come through the driver's channel, one after the other; an env copy also answers its policy
copies, each through a channel of its own. Arrays are in arenas: every process writes to one and
reads all.
"""

from __future__ import annotations

import pickle
import select
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from rondel.execution.backends.processes.shared_memory import (
    Arena,
    Message,
    Place,
    View,
    decode,
    encode,
)
from rondel.execution.backends.serve_request import separate_results, serve_request
from rondel.execution.backends.wire.env_client import RemoteEnvClient
from rondel.execution.backends.wire.remote_errors import pack
from rondel.execution.backends.wire.socket_channel import Channel, Gone
from rondel.execution.backends.wire.worker_spec import unpack_worker
from rondel.execution.hostenv.crash_record import Recorder
from rondel.execution.requests import MAKE, Request, request_named
from rondel.execution.telemetry.timeouts import Timeouts
from rondel.execution.telemetry.timing import TRANSPORT, PiggybackedTimings, TimingSummary
from rondel.types import Step

_SMALL = 16 * 1024  # bytes of a step that go by the channel: arenas pay for more


class At(NamedTuple):
    """A value in the arena of a process."""

    owner: int
    message: Message


class Start(NamedTuple):
    """What a new process needs to know before it makes its worker."""

    me: int  # its number, and that of its arena
    name: str
    arenas: int
    settings: bytes  # of JAX
    patience: Timeouts  # with environments that it has lines to
    links: tuple[tuple[int, int, str], ...] = ()  # (env copy, its arena's number, its name)
    driven: int = 0  # policy copies that drive it
    live: tuple[Place, ...] = ()  # of its arena: left by the process before it, and still read


class Call(NamedTuple):
    """One request, by name; the first makes the worker."""

    number: int
    request: str
    args: tuple[Any, ...]
    done_with: list[Place]  # of its own arena: free again


class Answer(NamedTuple):
    number: int
    results: list[Message]
    failure: bytes | None = None
    seconds: float = 0.0  # that it took
    seen: PiggybackedTimings | None = None  # now and then


def main(fds: Sequence[int], payload: bytes) -> None:
    """Serve requests until the driver ends the copy or is gone."""
    start: Start = pickle.loads(payload)
    ends = iter(fds)
    driver = Channel.from_fd(next(ends), "the driver")
    arenas = [next(ends) for _ in range(start.arenas)]
    views = [View(fd) for fd in arenas]
    try:
        first = driver.receive()  # before it touches its arena: another may be started in its place
    except Gone:
        return
    worker = _Worker(start, driver, Arena(arenas[start.me], start.live), views)
    worker.recorder = Recorder(next(ends))
    links = {
        env: RemoteEnvClient(
            Channel.from_fd(next(ends), name), start.patience, partial(_step, views[arena])
        )
        for env, arena, name in start.links
    }
    driven = [Channel.from_fd(fd, "a policy") for fd in ends]
    worker.serve(first, links, driven)


def _step(view: View, step: Message | Step) -> Step:
    """A step as `Questions` sends it."""
    return decode(step, view) if isinstance(step, Message) else step


class _Worker:
    def __init__(self, start: Start, driver: Channel, arena: Arena, views: list[View]) -> None:
        self.start, self.driver, self.arena, self.views = start, driver, arena, views
        self.worker: Any = None
        self.recorder: Recorder | None = None
        self.failure: bytes | None = None  # from then on the answer to everything

    def serve(self, first: Call | None, links: dict[int, Any], driven: list[Channel]) -> None:
        """Answer the driver and the policies as their requests come."""
        questions = {channel.fileno(): Questions(channel, self.arena) for channel in driven}
        events = select.poll()
        for fd in (self.driver.fileno(), *questions):
            events.register(fd, select.POLLIN)
        try:
            if first is None:
                return
            self._answer(first, links)
            while True:
                for fd, _ in events.poll() if questions else [(self.driver.fileno(), 0)]:
                    if fd != self.driver.fileno():
                        if not questions[fd].answer(self.worker, self.start.name):
                            events.unregister(fd)
                    elif (call := self.driver.receive()) is None:
                        return
                    else:
                        self._answer(call, links)
                        del call
        except Gone:
            pass  # so is the driver
        finally:
            if self.worker is not None:
                self.worker.close()

    def _answer(self, call: Call, links: dict[int, Any]) -> None:
        began = time.monotonic()
        if self.failure is not None:
            self.driver.send(Answer(call.number, [], self.failure))
            return
        try:
            self.arena.free(call.done_with)
            request = request_named(call.request)
            if request is MAKE:
                (packed,) = call.args
                self._make(packed, links)
                results = [encode(None, self.arena)]
            else:
                reply = partial(self._encode, request)
                results = serve_request(self.worker, request, call.args, self._receive, reply)
            seen = None if self.worker is None else self.worker.timings_if_due()
            answer = Answer(call.number, results, None, time.monotonic() - began, seen)
        except BaseException as error:
            self.failure = pack(error, self.start.name)
            answer = Answer(call.number, [], self.failure)
        self.driver.send(answer)

    def _receive(self, args: Sequence[Any]) -> tuple[list[Any], int]:
        moved = sum(_size(x.message) for x in args if isinstance(x, At))
        return [self._read(x) if isinstance(x, At) else x for x in args], moved

    def _encode(self, request: Request, result: Any) -> tuple[list[Message], int]:
        each = [encode(_on_host(x), self.arena) for x in separate_results(request, result)]
        return each, sum(map(_size, each))

    def _make(self, packed: bytes, links: dict[int, Any]) -> None:
        self.worker = unpack_worker(packed, self.start.settings)
        if links:
            self.worker.connect(links)
        if hasattr(self.worker, "record"):
            self.worker.record(self.recorder)

    def _read(self, at: At) -> Any:
        tree = decode(at.message, self.views[at.owner])
        if "jax" not in sys.modules:
            return tree
        from rondel.execution.stages.task import to_device

        return to_device(tree)


def _size(message: Message) -> int:
    return sum(nbytes for _, nbytes in message.places)


def _on_host(tree: Any) -> Any:
    if "jax" not in sys.modules:
        return tree
    from rondel.execution.stages.task import on_host

    return on_host(tree)


class Questions:
    """The requests of one policy copy to the env copy in this process."""

    def __init__(self, channel: Channel, arena: Arena) -> None:
        self._channel, self._arena = channel, arena
        self._lent: dict[int, tuple[Place, ...]] = {}  # by first lane: of the last answer

    def answer(self, stage: Any, name: str) -> bool:
        """Answer one request; False if there will be no more."""
        try:
            asked, *args = self._channel.receive()
        except Gone:
            return False
        first_lane: int = args[0]
        self._arena.free(self._lent.pop(first_lane, ()))
        nbytes = 0
        answer: tuple[int, Any, bytes | None, TimingSummary | None]
        try:
            step = _on_host(serve_request(stage, request_named(asked), args))
            nbytes = _bytes(step.obs) if isinstance(step, Step) else 0
            if nbytes > _SMALL:
                step = encode(step, self._arena)
                self._lent[first_lane] = step.places
            said = stage.meter.summary() if stage.meter.is_due() else None
            answer = first_lane, step, None, said
        except BaseException as error:
            answer = first_lane, None, pack(error, name), None
        try:
            self._channel.send(answer)
        except Gone:
            return False
        stage.meter.mark("env", TRANSPORT, nbytes)
        return True


def _bytes(tree: Any) -> int:
    """The bytes of an observation: arrays, or dicts and tuples of them."""
    if isinstance(tree, dict):
        return sum(map(_bytes, tree.values()))
    return sum(map(_bytes, tree)) if isinstance(tree, tuple) else tree.nbytes
