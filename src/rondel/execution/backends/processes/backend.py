"""Every copy in a process of this machine: arrays in shared memory, requests over sockets.

The driver sends a request once all its arguments are there, and only a few to one copy at a time,
so that no socket is ever full. It takes in answers whenever it waits for something. Who is late,
and what becomes of dead copies, is `recovery.state`'s to decide.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import jax

from rondel.errors import RondelError
from rondel.execution.backends.lowering import Lowering
from rondel.execution.backends.processes.fork_server import is_stopped
from rondel.execution.backends.processes.launcher import Launcher
from rondel.execution.backends.processes.proxy import ProcessProxy, Promise
from rondel.execution.backends.processes.shared_memory import Arena, View, decode, encode
from rondel.execution.backends.processes.worker import Answer, At, Call, Start
from rondel.execution.backends.protocol import Copy, Lost, Restarts, Unresponsive, worker_factory
from rondel.execution.backends.recovery import events as ev
from rondel.execution.backends.recovery.recovery import Recovery
from rondel.execution.backends.recovery.request_log import Redo, RequestLog
from rondel.execution.backends.wire.remote_errors import unpack
from rondel.execution.backends.wire.socket_channel import Gone
from rondel.execution.backends.wire.worker_spec import jax_settings, pack
from rondel.execution.hostenv import crash_record
from rondel.execution.requests import KEEP, MAKE
from rondel.execution.stages.task import on_host, to_device
from rondel.execution.telemetry.timeouts import timeouts_for
from rondel.plan.plan import copy_name, has_separate_envs

_AT_ONCE = 8  # unanswered requests of one copy
_MOST = 240  # copies, as every process maps every arena
_GRACE = 5.0  # seconds that copies have to end by themselves
_LOOK_EVERY = 1.0  # seconds
_SEARCH = 1.0  # seconds to find out who has died, if a copy has only missed another


class Processes:
    """The backend of local processes.

    `deadline`: seconds for an answer. `restarts`: how often a copy that died or hangs is started
    again without progress; 0 ends the run instead.
    """

    elastic = None

    def __init__(self, deadline: float = 600.0, restarts: int = 0) -> None:
        self._deadline, self._restarts = deadline, restarts
        self._copies: list[ProcessProxy] = []
        self._launcher: Launcher | None = None
        self._arena: Arena | None = None
        self._fds: list[int] = []  # of all arenas; the first is the driver's
        self._views: list[View] = []
        self._by_fd: dict[int, ProcessProxy] = {}
        self._poll = select.poll()
        self._number = 0  # of the last request
        self._over: BaseException | None = None  # what ended the run
        self._looked = 0.0  # when the state was last told who is stopped

    def __del__(self) -> None:
        """End the processes of a run that nobody closed."""
        if self._copies or self._launcher:
            try:  # noqa: SIM105 when the interpreter ends, names of this module are gone
                self.close()
            except Exception:
                pass

    def launch(self, task: Any, lowering: Lowering) -> list[list[Copy]]:
        plan = lowering.plan
        total = sum(piece.copies for piece in plan.pieces)
        if total > _MOST:
            raise RondelError(
                f"{plan} has {total} copies; --on processes takes at most {_MOST}. Use fewer "
                "copies with more lanes each, or --on ray."
            )
        timeouts = with_envs = timeouts_for(self._deadline)
        if has_separate_envs(plan):  # a policy first names the environment that is late
            timeouts = with_envs.twice()
        obey: dict[type, Callable[[Any], None]] = {
            ev.Restart: self._restart,
            ev.FindCause: self._find_cause,
            ev.Inspect: self._inspect,
            ev.TakeSnapshots: self._take_snapshots,
        }
        self.recovery = Recovery(plan, self._restarts, timeouts, obey, self._end)
        self.state = self.recovery.state
        makers = {
            (piece, copy): worker_factory(task, plan, piece, copy)
            for piece, (_, copies, _) in enumerate(plan.pieces)
            for copy in range(copies)
        }
        self._make_arenas(len(makers))
        self._launcher = Launcher(plan, self._fds, persistent=self._restarts > 0)
        for make, _ in makers.values():  # they import while the rest is got ready
            self._launcher.prepare(make)
        packed, settings = pack(makers.values()), jax_settings()
        pieces: list[list[Any]] = [[] for _ in plan.pieces]
        for number, ((piece, copy), (make, _)) in enumerate(makers.items(), 1):
            name = copy_name(plan, piece, copy)
            start = Start(number, name, len(self._fds), settings, with_envs)
            made = ProcessProxy(self, piece, copy, start, make)
            made.log = RequestLog(self.state.copies[number - 1].has_snapshots)
            made.packed = packed[number - 1]
            pieces[piece].append(made)
            self._copies.append(made)
        self._redo = Redo(plan, task)
        for unit in dict.fromkeys(copy.unit for copy in self.state.copies):
            self._start([self._copies[i] for i in unit])
        self.get([copy.send(MAKE, copy.packed) for copy in self._copies])
        return pieces

    def _make_arenas(self, copies: int) -> None:
        self._arena = Arena()
        self._fds = [self._arena.fd]
        for _ in range(copies):
            self._fds.append(os.memfd_create("rondel-arena", os.MFD_CLOEXEC))
        self._views = [View(os.dup(fd)) for fd in self._fds]

    def _start(self, unit: list[ProcessProxy]) -> None:
        assert self._launcher is not None
        self._launcher.start(unit)
        self.recovery.report(ev.Started, [copy.index for copy in unit])
        for copy in unit:
            self.recovery.report(ev.Arrived, copy.index, copy.full_name)
            self._by_fd[copy.channel.fileno()] = copy
            self._poll.register(copy.channel.fileno(), select.POLLIN)

    def raise_if_over(self) -> None:
        """Raise what ended the run, if it is over."""
        if self._over is not None:
            raise self._over

    def send_ready(self, copy: ProcessProxy) -> None:
        """Send a copy its next requests, in order, as far as their arguments are there."""
        unsent, sent = copy.log.unsent, copy.log.sent
        while unsent and len(sent) < _AT_ONCE:
            asked = unsent[0]
            if any(isinstance(x, Promise) and x.message is None for x in asked.args):
                return
            args = tuple(self._write(x) for x in asked.args)
            lent = [p for a in args if type(a) is At and a.owner == 0 for p in a.message.places]
            copy.drain()
            done_with, copy.done_with = copy.done_with, []
            self._number += 1
            # noted before it is sent: an interrupt in between must not lose it
            sent[self._number], copy.lent[self._number] = asked, lent
            unsent.popleft()
            self.recovery.report(ev.Sent, copy.index, asked.request)
            try:
                copy.channel.send(Call(self._number, asked.request.name, args, done_with))
            except Gone:
                self._died(copy)
                return

    def _write(self, x: Any) -> Any:
        """An argument as it is sent: arrays as their place in the arena that holds them."""
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
        while not there():
            patience = min(_LOOK_EVERY, self._deadline)
            self._take_in(patience)
            if time.monotonic() - self._looked > patience:
                stopped = [copy.index for copy in self._copies if is_stopped(copy.pid)]
                self.recovery.report(ev.Looked, stopped)
                self._looked = time.monotonic()

    def _take_in(self, seconds: float) -> None:
        """Take in the answers that have come, or that come within `seconds`."""
        restarted = self.state.restarted
        ready = self._poll.poll(seconds * 1000)
        for fd, _ in ready:
            self._take_in_from(self._by_fd[fd])
            if self.state.restarted != restarted:
                break  # descriptors may be others now
        if ready:
            for copy in self._copies:
                if copy.log.unsent:
                    self.send_ready(copy)

    def _take_in_from(self, copy: ProcessProxy) -> None:
        try:
            answer = copy.channel.receive(self._deadline)
        except Gone:
            self._died(copy)
            return
        if answer.failure is None:
            self._hear(copy, answer)
            return
        error = unpack(answer.failure)
        if not isinstance(error, Lost | Unresponsive):  # the user's own
            self._end(error)
        self.recovery.report(ev.Missed, copy.index, str(error), isinstance(error, Unresponsive))

    def _hear(self, copy: ProcessProxy, answer: Answer) -> None:
        copy.timings = answer.seen or copy.timings
        asked = copy.log.heard(answer.number)
        again = asked.promises is None
        counts = not (again or asked.request is KEEP)
        nbytes = sum(n for message in answer.results for _, n in message.places) if counts else 0
        self.recovery.report(ev.Replied, copy.index, asked.request, again, nbytes, answer.seconds)
        assert self._arena is not None
        self._arena.free(copy.lent.pop(answer.number))
        if asked.promises is None:
            copy.done_with.extend(place for m in answer.results for place in m.places)
            return
        for promise, message in zip(asked.promises, answer.results, strict=True):
            promise.keep(message)

    def after_round(self, now: bool = False) -> None:
        self.recovery.report(ev.RoundEnded, now)
        asked = self.recovery.snapshots
        if asked and all(_is_there(state) for _, _, state in asked):
            self.recovery.keep_snapshots([self._value(flag) for _, flag, _ in asked])

    def _take_snapshots(self, asked: ev.TakeSnapshots) -> None:
        self.recovery.ask_for_snapshots(asked.number, self._copies)
        if asked.wait:
            self._until(lambda: all(_is_there(state) for *_, state in self.recovery.snapshots))

    def restarts(self) -> Restarts:
        return self.recovery.restarts()

    # when a copy dies or hangs

    def _died(self, copy: ProcessProxy) -> None:
        how = copy.fork_server.status(copy.pid, timeout=1.0) or "is gone"
        killed = "SIGKILL" in how or "SIGTERM" in how or how == "is gone"
        self._inspect(ev.Inspect(ev.End(copy.index, how, killed)))

    def _inspect(self, asked: ev.Inspect) -> None:
        """Find out what the environment was doing: that outlives its process."""
        unit = [asked.end.copy, *self.state.unit(asked.end.copy)]
        actions = [crash_record.read(self._copies[i].page) for i in unit]
        end = asked.end._replace(action=next(filter(None, actions), ""))
        self.recovery.report(ev.Died, (end,))

    def _find_cause(self, asked: ev.FindCause) -> None:
        """A copy failed because another one is gone: wait a moment for news of that one."""
        end = time.monotonic() + _SEARCH
        mine, restarted = self._copies[asked.missed.copy], self.state.restarted
        while time.monotonic() < end:
            for fd, _ in self._poll.poll(100):
                if fd != mine.channel.fileno():
                    self._take_in_from(self._by_fd[fd])
                    if self.state.restarted != restarted:
                        return
        self.recovery.report(lambda now: asked.missed._replace(time=now, searched=True))

    def _restart(self, asked: ev.Restart) -> None:
        unit = [self._copies[i] for i in asked.copies]
        time.sleep(asked.pause)
        try:
            for copy in unit:
                self._bury(copy)
            for copy in unit:
                copy.log.queue_all(copy.packed, asked.episodes, self._redo, copy.piece)
            self._start(unit)
        except BaseException as error:  # an interrupt, perhaps: copies are half started
            self._over = error
            raise
        for copy in unit:
            self.send_ready(copy)

    def _bury(self, copy: ProcessProxy) -> None:
        """End a process that may still run. What it has answered until then counts."""
        if copy.fork_server.status(copy.pid) is None:
            with suppress(ProcessLookupError):
                os.kill(copy.pid, signal.SIGKILL)
            copy.fork_server.status(copy.pid, timeout=_GRACE)
        with suppress(Gone, TimeoutError):
            while (answer := copy.channel.receive(0.0)).failure is None:
                self._hear(copy, answer)
        assert self._arena is not None
        for lent in copy.lent.values():
            self._arena.free(lent)
        copy.lent.clear()
        self._by_fd.pop(copy.channel.fileno())
        self._poll.unregister(copy.channel.fileno())
        copy.hang_up()

    def _end(self, error: BaseException) -> NoReturn:
        self._over = error
        raise error

    def close(self) -> None:
        self._over = self._over or RondelError(
            "This run is closed and its processes have ended. Use rondel.load for what it saved."
        )
        if self._copies:
            self.recovery.forget()
        copies, self._copies = self._copies, []
        copies = [copy for copy in copies if copy.pid]
        for copy in copies:
            with suppress(Gone, RondelError, OSError):
                copy.channel.send(None, timeout=1.0)
        launcher, self._launcher = self._launcher, None
        if launcher is not None:
            launcher.close(_GRACE)
        for copy in copies:
            copy.hang_up()
            copy.log = RequestLog(has_snapshots=False)  # promises and copies hold each other
        while self._views:
            self._views.pop().close()
        for fd in self._fds[1:]:
            os.close(fd)
        self._fds = []
        if self._arena is not None:
            self._arena.close()
            self._arena = None
        self._by_fd.clear()
        self._poll = select.poll()


def _is_there(promise: Any) -> bool:
    return not isinstance(promise, Promise) or promise.message is not None
