"""Every copy in a process of this machine: arrays through shared memory, commands through sockets.

The driver sends a call when all that it needs is there, and only a few to one copy at a time, so
that no channel is ever full. It takes in answers whenever it waits for something.
"""

from __future__ import annotations

import os
import pickle
import select
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import cloudpickle  # type: ignore[import-untyped]
import jax

from rondel.errors import RondelError
from rondel.execution.backend import Copy, Late, Lost, drives, envs_of, name_of, recipe
from rondel.execution.backends.channel import Channel, Gone, pair
from rondel.execution.backends.failure import unpack
from rondel.execution.backends.shared import Arena, Message, Place, View, decode, encode
from rondel.execution.backends.spawner import Child, Spawner
from rondel.execution.backends.worker import Answer, At, Call, Start
from rondel.execution.fragment import RESULTS
from rondel.execution.hosted import HostedLanes
from rondel.execution.task import on_host, to_device
from rondel.plan import Plan

_AT_ONCE = 8  # calls that a copy has been sent and has not answered
_MOST = 240  # copies: every process holds every arena
_GRACE = 5.0  # seconds that copies have to end by themselves
_LIGHT = ("rondel.execution.backends.worker", "rondel.execution.hosted", "rondel.envs.gym.lanes")
_HEAVY = ("optax", "rondel.execution.traced", "rondel.execution.fragment", *_LIGHT)
_SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_threefry_partitionable",
)


class Promise:
    """What a copy was asked for; once it is there, it lies in that copy's arena."""

    def __init__(self, owner: ProcessCopy) -> None:
        self.owner = owner
        self.message: Message | None = None

    def __del__(self) -> None:
        if self.message is not None and self.message.places:
            self.owner.done_with += self.message.places


class ProcessCopy:
    """The driver's end of a copy."""

    def __init__(self, backend: Processes, number: int, name: str, channel: Channel) -> None:
        self.number, self.name, self.channel = number, name, channel
        self.child: Child | None = None
        self.done_with: list[Place] = []  # of its arena: it is told with the next call
        self.unsent: deque[tuple[Call, list[Promise]]] = deque()
        # calls under way: what they promise, and what they were given, which is kept until then
        self.sent: dict[int, tuple[list[Promise], tuple[Any, ...]]] = {}
        self._backend = backend

    def call(self, request: Any, *args: Any) -> Any:
        results = RESULTS.get(request, 1)
        promises = [Promise(self) for _ in range(results)]
        call = Call(self._backend.next_number(), request, args, results, [])
        self.unsent.append((call, promises))
        self._backend.send_ready(self)
        return promises[0] if results == 1 else tuple(promises)


class Processes:
    """The backend of local processes. `deadline`: seconds without any answer that are too many."""

    def __init__(self, deadline: float = 600.0) -> None:
        self._deadline = deadline
        self._copies: list[ProcessCopy] = []
        self._spawners: dict[tuple[str, ...], Spawner] = {}
        self._arena: Arena | None = None
        self._views: list[View] = []
        self._by_fd: dict[int, ProcessCopy] = {}
        self._poll = select.poll()
        self._number = 0

    def launch(self, task: Any, plan: Plan) -> list[list[Copy]]:
        total = sum(piece.copies for piece in plan.pieces)
        if total > _MOST:
            raise RondelError(
                f"{plan} has {total} copies; {_MOST} processes are the most on one machine here. "
                "Fewer copies with more lanes each would work, or on='ray' on several machines."
            )
        recipes = {
            (piece, copy): recipe(task, plan, piece, copy)
            for piece, (_, copies) in enumerate(plan.pieces)
            for copy in range(copies)
        }
        for make, _ in recipes.values():  # they import while the rest is got ready
            self._spawner(make)
        self._arena = Arena()
        arenas = [
            self._arena.fd,
            *(os.memfd_create("rondel-arena", os.MFD_CLOEXEC) for _ in recipes),
        ]
        self._views = [View(os.dup(fd)) for fd in arenas]
        try:
            pieces = self._spawn(plan, recipes, arenas)
        finally:
            for fd in arenas[1:]:
                os.close(fd)
        made = []
        for (piece, copy), (make, args) in recipes.items():
            parts = (cloudpickle.dumps(make), cloudpickle.dumps(args), make is not HostedLanes)
            made.append(pieces[piece][copy].call(pickle.dumps(parts)))
        self.get(made)
        return pieces

    def _spawner(self, make: Any) -> Spawner:
        preload = _LIGHT if make is HostedLanes else _HEAVY
        if preload not in self._spawners:
            self._spawners[preload] = Spawner(preload)
        return self._spawners[preload]

    def _spawn(self, plan: Plan, recipes: Any, arenas: list[int]) -> list[list[Any]]:
        settings = {name: getattr(jax.config, name, None) for name in _SETTINGS}
        settings = {name: value for name, value in settings.items() if value is not None}
        numbers = {place: i + 1 for i, place in enumerate(recipes)}
        policy = plan.pieces.index(plan.piece_of("policy"))
        lines: dict[tuple[int, int], tuple[Channel, Channel]] = {}  # by policy and env copy
        if drives(plan):
            for copy in range(plan.copies("policy")):
                lines |= {(copy, env): pair() for env in envs_of(plan, copy)}
        pieces: list[list[Any]] = [[] for _ in plan.pieces]
        for (piece, copy), (make, _) in recipes.items():
            ours, theirs = pair()
            links = [at for at in lines if piece == policy and at[0] == copy]
            driven = [at for at in lines if piece == 0 and at[1] == copy]
            start = Start(
                me=numbers[piece, copy],
                name=name_of(plan, piece, copy),
                arenas=len(arenas),
                links=tuple((e, numbers[0, e], name_of(plan, 0, e)) for _, e in links),
                driven=len(driven),
                settings={} if make is HostedLanes else settings,
                deadline=self._deadline,
            )
            ends = [lines[at][0] for at in links] + [lines[at][1] for at in driven]
            fds = [theirs.fileno(), *arenas, *(end.fileno() for end in ends)]
            made = ProcessCopy(self, start.me, start.name, ours)
            self._copies.append(made)
            pieces[piece].append(made)
            made.child = self._spawner(make).spawn(
                "rondel.execution.backends.worker:main", fds, pickle.dumps(start)
            )
            theirs.close()
            self._by_fd[ours.fileno()] = made
            self._poll.register(ours.fileno(), select.POLLIN)
        _close(end for both in lines.values() for end in both)
        return pieces

    def next_number(self) -> int:
        """A number for a call."""
        self._number += 1
        return self._number

    def send_ready(self, copy: ProcessCopy) -> None:
        """Send what can be sent to a copy: not too much at once, and in order."""
        while copy.unsent and len(copy.sent) < _AT_ONCE:
            call, promises = copy.unsent[0]
            if any(isinstance(x, Promise) and x.message is None for x in call.args):
                return
            copy.unsent.popleft()
            args = tuple(self._write(x) for x in call.args)
            done_with, copy.done_with = copy.done_with, []
            try:
                copy.channel.send(call._replace(args=args, done_with=done_with))
            except Gone:
                self._mourn(copy)
            copy.sent[call.number] = promises, (*call.args, *(a for a in args if type(a) is At))

    def _write(self, x: Any) -> Any:
        """An argument as it is sent: trees of arrays by the arena of whoever has them."""
        if isinstance(x, Promise):
            assert x.message is not None
            return At(x.owner.number, x.message)
        if x is None or isinstance(x, int | float | str | bytes) or not jax.tree.leaves(x):
            return x
        if all(isinstance(leaf, int | float | str) for leaf in jax.tree.leaves(x)):
            return x
        assert self._arena is not None
        return At(0, encode(on_host(x), self._arena))

    def get(self, promises: Sequence[Any]) -> list[Any]:
        self._until(lambda: all(_is_there(p) for p in promises))
        return [self._value(p) if isinstance(p, Promise) else p for p in promises]

    def wait(self, promises: Sequence[Any]) -> list[int]:
        self._take_in(0.0)
        self._until(lambda: any(_is_there(p) for p in promises))
        return [i for i, p in enumerate(promises) if _is_there(p)]

    def _value(self, promise: Promise) -> Any:
        assert promise.message is not None
        return to_device(decode(promise.message, self._views[promise.owner.number]))

    def _until(self, there: Any) -> None:
        heard = time.monotonic()
        while not there():
            if self._take_in(min(1.0, self._deadline)):
                heard = time.monotonic()
            elif time.monotonic() - heard > self._deadline:
                late = [copy.name for copy in self._copies if copy.sent]
                raise Late(
                    f"Nothing was heard for {self._deadline:g} s. Asked and silent: "
                    f"{', '.join(late)}."
                )

    def _take_in(self, seconds: float) -> bool:
        """Take in the answers that have come, or come within so many seconds: were there any?"""
        ready = self._poll.poll(seconds * 1000)
        for fd, _ in ready:
            copy = self._by_fd[fd]
            try:
                self._hear(copy, copy.channel.receive(self._deadline))
            except Gone:
                self._mourn(copy)
        if ready:
            for copy in self._copies:
                self.send_ready(copy)
        return bool(ready)

    def _hear(self, copy: ProcessCopy, answer: Answer) -> None:
        promises, given = copy.sent.pop(answer.number)
        assert self._arena is not None
        self._arena.free(
            p for x in given if type(x) is At and x.owner == 0 for p in x.message.places
        )
        if answer.failure is not None:
            self._blame(unpack(answer.failure))
        for promise, message in zip(promises, answer.results, strict=True):
            promise.message = message

    def _blame(self, error: BaseException) -> NoReturn:
        """Raise what a copy raised; where it only missed another one, say what became of that."""
        if isinstance(error, Lost):
            for fd, _ in self._poll.poll(1000):
                with suppress(Gone):
                    self._by_fd[fd].channel.receive(0.0)
                    continue
                self._mourn(self._by_fd[fd])
        raise error

    def _mourn(self, copy: ProcessCopy) -> NoReturn:
        assert copy.child is not None
        told = (s.status(copy.child.pid, timeout=1.0) for s in self._spawners.values())
        how = next(filter(None, told), "is gone")
        raise Lost(f"{copy.name} (process {copy.child.pid}) {how}.")

    def close(self) -> None:
        copies, self._copies = self._copies, []
        for copy in copies:
            with suppress(Gone, RondelError, OSError):
                copy.channel.send(None, timeout=1.0)
        spawners, self._spawners = self._spawners, {}
        for spawner in spawners.values():
            spawner.close(_GRACE)
        _close(copy.channel for copy in copies)
        _close(self._views)
        self._views = []
        if self._arena is not None:
            self._arena.close()
            self._arena = None
        self._by_fd.clear()
        self._poll = select.poll()


def _is_there(promise: Any) -> bool:
    return not isinstance(promise, Promise) or promise.message is not None


def _close(things: Iterable[Any]) -> None:
    for thing in things:
        thing.close()
