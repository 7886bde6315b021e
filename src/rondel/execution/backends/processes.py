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
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from typing import Any, NoReturn

import cloudpickle  # type: ignore[import-untyped]
import jax

from rondel.errors import RondelError
from rondel.execution.backend import Copy, Late, Lost, drives, envs_of, name_of, recipe
from rondel.execution.backends.channel import Channel, Gone, pair
from rondel.execution.backends.failure import unpack
from rondel.execution.backends.shared import Arena, Message, Place, View, decode, encode
from rondel.execution.backends.spawner import Spawner
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
            self.owner.done_with.extend(self.message.places)


class ProcessCopy:
    """The driver's end of a copy."""

    def __init__(self, backend: Processes, number: int, name: str, channel: Channel) -> None:
        self.number, self.name, self.channel = number, name, channel
        self.spawner: Spawner | None = None
        self.pid = 0
        self.done_with: deque[Place] = deque()  # of its arena: it is told with the next call
        self.unsent: deque[tuple[Call, list[Promise]]] = deque()
        # calls under way: what they promise, and what they were given, which is kept until then
        self.sent: dict[int, tuple[list[Promise], tuple[Any, ...]]] = {}
        self._backend = backend

    @property
    def full_name(self) -> str:
        return f"{self.name} (process {self.pid})"

    def call(self, request: Any, *args: Any) -> Any:
        self._backend.raise_if_over()
        results = RESULTS.get(request, 1)
        promises = [Promise(self) for _ in range(results)]
        call = Call(self._backend.next_number(), request, args, results, [])
        self.unsent.append((call, promises))
        self._backend.send_ready(self)
        return promises[0] if results == 1 else tuple(promises)


class Processes:
    """The backend of local processes. `deadline`: seconds without any answer that are too many."""

    def __init__(self, deadline: float = 600.0) -> None:
        self._deadline = self._patience = deadline
        self._copies: list[ProcessCopy] = []
        self._spawners: dict[tuple[str, ...], Spawner] = {}
        self._arena: Arena | None = None
        self._views: list[View] = []
        self._by_fd: dict[int, ProcessCopy] = {}
        self._poll = select.poll()
        self._number = 0
        self._over: BaseException | None = None  # what ended it

    def __del__(self) -> None:
        """A run that nobody closed leaves nothing either."""
        if self._copies or self._spawners:
            try:  # noqa: SIM105 when the interpreter ends, names of this module are gone
                self.close()
            except Exception:
                pass

    def launch(self, task: Any, plan: Plan) -> list[list[Copy]]:
        total = sum(piece.copies for piece in plan.pieces)
        if total > _MOST:
            raise RondelError(
                f"{plan} has {total} copies; {_MOST} processes are the most on one machine here. "
                "Fewer copies with more lanes each would work, or on='ray' on several machines."
            )
        if drives(plan):  # time for a policy to tell which of its environments is late
            self._patience = 2 * self._deadline
        recipes = {
            (piece, copy): recipe(task, plan, piece, copy)
            for piece, (_, copies) in enumerate(plan.pieces)
            for copy in range(copies)
        }
        for make, _ in recipes.values():  # they import while the rest is got ready
            self._spawner(make)
        pickled: dict[int, bytes] = {}  # by id: most is the same for all copies
        for x in (x for make, args in recipes.values() for x in (make, *args)):
            pickled[id(x)] = pickled.get(id(x)) or _pickle(x)
        pieces = self._spawn(plan, recipes)
        made = []
        for (piece, copy), (make, args) in recipes.items():
            parts = [pickled[id(x)] for x in (make, *args)]
            made.append(pieces[piece][copy].call(pickle.dumps(parts)))
        self.get(made)
        return pieces

    def _spawner(self, make: Any) -> Spawner:
        preload = _LIGHT if make is HostedLanes else _HEAVY
        if preload not in self._spawners:
            self._spawners[preload] = Spawner(preload)
        return self._spawners[preload]

    def _spawn(self, plan: Plan, recipes: Any) -> list[list[Any]]:
        """A process for each copy, with lines between policies and environments."""
        numbers = {place: i + 1 for i, place in enumerate(recipes)}
        policy = plan.pieces.index(plan.piece_of("policy"))
        settings = pickle.dumps(_settings())
        pieces: list[list[Any]] = [[] for _ in plan.pieces]
        with ExitStack() as passed_on:  # processes have these for themselves
            arenas = self._make_arenas(len(recipes), passed_on)
            lines: dict[tuple[int, int], tuple[Channel, Channel]] = {}  # by policy and env copy
            for copy in range(plan.copies("policy")) if drives(plan) else ():
                for env in envs_of(plan, copy):
                    lines[copy, env] = pair()
                    for end in lines[copy, env]:
                        passed_on.callback(end.close)
            for (piece, copy), (make, _) in recipes.items():
                links = [at for at in lines if piece == policy and at[0] == copy]
                driven = [at for at in lines if piece == 0 and at[1] == copy]
                start = Start(
                    me=numbers[piece, copy],
                    name=name_of(plan, piece, copy),
                    arenas=len(arenas),
                    links=tuple((e, numbers[0, e], name_of(plan, 0, e)) for _, e in links),
                    driven=len(driven),
                    settings=settings,
                    deadline=self._deadline,
                )
                ends = [lines[at][0] for at in links] + [lines[at][1] for at in driven]
                fds = [*arenas, *(end.fileno() for end in ends)]
                pieces[piece].append(self._start(make, start, fds))
        return pieces

    def _make_arenas(self, copies: int, passed_on: ExitStack) -> list[int]:
        self._arena = Arena()
        fds = [self._arena.fd]
        for _ in range(copies):
            fds.append(os.memfd_create("rondel-arena", os.MFD_CLOEXEC))
            passed_on.callback(os.close, fds[-1])
        for fd in fds:
            self._views.append(View(os.dup(fd)))
        return fds

    def _start(self, make: Any, start: Start, fds: list[int]) -> ProcessCopy:
        ours, theirs = pair()
        made = ProcessCopy(self, start.me, start.name, ours)
        self._copies.append(made)
        self._by_fd[ours.fileno()] = made
        self._poll.register(ours.fileno(), select.POLLIN)
        made.spawner = self._spawner(make)
        with closing(theirs):
            made.pid = made.spawner.spawn(
                "rondel.execution.backends.worker:main",
                [theirs.fileno(), *fds],
                pickle.dumps(start),
            ).pid
        return made

    def raise_if_over(self) -> None:
        """Say again what ended it, if it is over."""
        if self._over is not None:
            raise self._over

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
            args = tuple(self._write(x) for x in call.args)
            # promises may be let go of in another thread meanwhile, by a collection of garbage
            done_with = [copy.done_with.popleft() for _ in range(len(copy.done_with))]
            # known as sent before it is: an interrupt in between must not lose it
            copy.sent[call.number] = promises, (*call.args, *(a for a in args if type(a) is At))
            copy.unsent.popleft()
            try:
                copy.channel.send(call._replace(args=args, done_with=done_with))
            except Gone:
                self._mourn(copy)

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
        if any(isinstance(p, Promise) for p in promises):
            self._until(lambda: all(_is_there(p) for p in promises))
        return [self._value(p) if isinstance(p, Promise) else p for p in promises]

    def wait(self, promises: Sequence[Any]) -> list[int]:
        self._until(lambda: any(_is_there(p) for p in promises), look=True)
        return [i for i, p in enumerate(promises) if _is_there(p)]

    def _value(self, promise: Promise) -> Any:
        assert promise.message is not None
        return to_device(decode(promise.message, self._views[promise.owner.number]))

    def _until(self, there: Any, look: bool = False) -> None:
        self.raise_if_over()
        if look:
            self._take_in(0.0)
        heard = time.monotonic()
        while not there():
            if self._take_in(min(1.0, self._deadline)):
                heard = time.monotonic()
            elif time.monotonic() - heard > self._patience:
                late = [copy.full_name for copy in self._copies if copy.sent]
                self._end(
                    Late(
                        f"Nothing was heard for {self._patience:g} s. Asked and silent: "
                        f"{', '.join(late)}."
                    )
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
                if copy.unsent:
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
        end = time.monotonic() + 1.0
        while isinstance(error, Lost) and time.monotonic() < end:
            for fd, _ in self._poll.poll(100):
                try:
                    self._by_fd[fd].channel.receive(0.0)
                except Gone:
                    self._mourn(self._by_fd[fd])
        self._end(error)

    def _mourn(self, copy: ProcessCopy) -> NoReturn:
        assert copy.spawner is not None
        how = copy.spawner.status(copy.pid, timeout=1.0) or "is gone"
        self._end(Lost(f"{copy.full_name} {how}."))

    def _end(self, error: BaseException) -> NoReturn:
        self._over = error
        raise error

    def close(self) -> None:
        self._over = self._over or RondelError(
            "This run is closed and its processes are gone; rondel.load brings back what it saved."
        )
        copies, self._copies = self._copies, []
        for copy in copies:
            with suppress(Gone, RondelError, OSError):
                copy.channel.send(None, timeout=1.0)
        spawners, self._spawners = self._spawners, {}
        end = time.monotonic() + _GRACE
        for spawner in spawners.values():
            spawner.close(max(0.0, end - time.monotonic()))
        for copy in copies:
            copy.channel.close()
        while self._views:
            self._views.pop().close()
        if self._arena is not None:
            self._arena.close()
            self._arena = None
        self._by_fd.clear()
        self._poll = select.poll()


def _pickle(x: Any) -> bytes:
    try:
        pickled: bytes = cloudpickle.dumps(x)
        return pickled
    except Exception as error:
        raise RondelError(
            f"The environment or the algorithm can't be sent to another process: {error}. Make "
            "what can't be sent inside of it, or use on='threads'."
        ) from error


def _settings() -> dict[str, Any]:
    values = {name: getattr(jax.config, name, None) for name in _SETTINGS}
    return {name: value for name, value in values.items() if value is not None}


def _is_there(promise: Any) -> bool:
    return not isinstance(promise, Promise) or promise.message is not None
