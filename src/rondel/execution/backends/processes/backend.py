"""Every copy in a process of this machine: arrays through shared memory, commands through sockets.

The driver sends a call when all that it needs is there, and only a few to one copy at a time, so
that no channel is ever full. It takes in answers whenever it waits for something.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import jax

from rondel.errors import RondelError
from rondel.execution.backends.processes.fork_server import STOPPED, is_stopped
from rondel.execution.backends.processes.launcher import Launcher
from rondel.execution.backends.processes.proxy import ProcessProxy, Promise
from rondel.execution.backends.processes.shared_memory import Arena, View, decode, encode
from rondel.execution.backends.processes.worker import Answer, At, Call, Start
from rondel.execution.backends.protocol import Copy, Lost, Restarts, Unresponsive, worker_factory
from rondel.execution.backends.recovery.downtime import Downtime
from rondel.execution.backends.recovery.policy import AGAIN, because, told
from rondel.execution.backends.recovery.request_log import (
    LoggedRequest,
    Redo,
    RequestLog,
    is_start,
    pause_or_raise,
)
from rondel.execution.backends.recovery.snapshots import Snapshots
from rondel.execution.backends.wire.remote_errors import unpack
from rondel.execution.backends.wire.socket_channel import Gone
from rondel.execution.backends.wire.worker_spec import jax_settings, pack
from rondel.execution.hostenv import crash_record
from rondel.execution.requests import KEEP, MAKE
from rondel.execution.stages.task import on_host, to_device
from rondel.execution.telemetry.timeouts import timeouts_for
from rondel.plan.plan import Plan, copy_name, failure_units, has_separate_envs

_AT_ONCE = 8  # calls that a copy has been sent and has not answered
_MOST = 240  # copies: every process holds every arena
_GRACE = 5.0  # seconds that copies have to end by themselves
_ELSEWHERE = 10.0  # seconds between two looks that are too many to judge by
_log = logging.getLogger("rondel")


class Processes:
    """The backend of local processes.

    `deadline`: seconds without an answer that are too many. `restarts`: how often a copy that died
    or hangs may be started again without getting any further; 0 ends the run instead.
    """

    def __init__(self, deadline: float = 600.0, restarts: int = 0) -> None:
        self._deadline, self._patience = deadline, timeouts_for(deadline)
        self._restarts = restarts
        self._copies: list[ProcessProxy] = []
        self._starter: Launcher | None = None
        self._arena: Arena | None = None
        self._fds: list[int] = []  # of all arenas
        self._views: list[View] = []
        self._by_fd: dict[int, ProcessProxy] = {}
        self._poll = select.poll()
        self._number = 0
        self._over: BaseException | None = None  # what ended it
        self._looked = 0.0  # when the watchdog last did
        self._restarted = 0  # times that copies were started again
        self._keeper = Snapshots()
        self._outages = Downtime()

    def __del__(self) -> None:
        """A run that nobody closed leaves nothing either."""
        if self._copies or self._starter:
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
        with_envs = self._patience
        if has_separate_envs(plan):  # time for a policy to tell which of its environments is late
            self._patience = with_envs.twice()
        recipes = {
            (piece, copy): worker_factory(task, plan, piece, copy)
            for piece, (_, copies, _) in enumerate(plan.pieces)
            for copy in range(copies)
        }
        self._make_arenas(len(recipes))
        self._starter = Launcher(plan, self._fds, persistent=self._restarts > 0)
        for make, _ in recipes.values():  # they import while the rest is got ready
            self._starter.prepare(make)
        packed, settings = pack(recipes.values()), jax_settings()
        pieces: list[list[Any]] = [[] for _ in plan.pieces]
        for number, ((piece, copy), (make, _)) in enumerate(recipes.items(), 1):
            name = copy_name(plan, piece, copy)
            start = Start(number, name, len(self._fds), settings, with_envs)
            made = ProcessProxy(self, piece, copy, start, make)
            driven = has_separate_envs(plan) and piece == 0
            made.journal = RequestLog(is_kept=self._restarts > 0 and not driven)
            made.recipe = packed[number - 1]
            pieces[piece].append(made)
            self._copies.append(made)
        self._plan, self._redo = plan, Redo(plan, task)
        for unit in failure_units(plan):
            self._start([pieces[piece][copy] for piece, copy in unit])
        self.get([copy.send(MAKE, copy.recipe) for copy in self._copies])
        return pieces

    def _make_arenas(self, copies: int) -> None:
        self._arena = Arena()
        self._fds = [self._arena.fd]
        for _ in range(copies):
            self._fds.append(os.memfd_create("rondel-arena", os.MFD_CLOEXEC))
        self._views = [View(os.dup(fd)) for fd in self._fds]

    def _start(self, unit: list[ProcessProxy]) -> None:
        assert self._starter is not None
        self._starter.start(unit)
        for copy in unit:
            copy.known = set()
            self._by_fd[copy.channel.fileno()] = copy
            self._poll.register(copy.channel.fileno(), select.POLLIN)

    def raise_if_over(self) -> None:
        """Say again what ended it, if it is over."""
        if self._over is not None:
            raise self._over

    def send_ready(self, copy: ProcessProxy) -> None:
        """Send what can be sent to a copy: not too much at once, and in order."""
        unsent, sent = copy.journal.unsent, copy.journal.sent
        while unsent and len(sent) < _AT_ONCE:
            asked = unsent[0]
            if any(isinstance(x, Promise) and x.message is None for x in asked.args):
                return
            args = tuple(self._write(x) for x in asked.args)
            lent = [p for a in args if type(a) is At and a.owner == 0 for p in a.message.places]
            copy.drain()
            done_with, copy.done_with = copy.done_with, []
            if not sent:
                copy.busy_since = time.monotonic()
            self._number += 1
            # known as sent before it is: an interrupt in between must not lose it
            sent[self._number], copy.lent[self._number] = asked, lent
            unsent.popleft()
            try:
                copy.channel.send(Call(self._number, asked.request.name, args, done_with))
            except Gone:
                self._mourn(copy)
                return

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
        while not there():
            self._take_in(min(1.0, self._deadline))
            if time.monotonic() - self._looked > min(1.0, self._deadline):
                self._watch()

    def _take_in(self, seconds: float) -> None:
        """Take in the answers that have come, or come within so many seconds."""
        ready = self._poll.poll(seconds * 1000)
        for fd, _ in ready:
            copy = self._by_fd[fd]
            try:
                answer = copy.channel.receive(self._deadline)
            except Gone:
                self._mourn(copy)
                break  # descriptors may be others now
            if not self._hear(copy, answer):
                break
        if ready:
            for copy in self._copies:
                if copy.journal.unsent:
                    self.send_ready(copy)

    def _hear(self, copy: ProcessProxy, answer: Answer) -> bool:
        """Take in an answer; False if copies had to be started again for it."""
        if answer.failure is not None:
            self._blame(copy, unpack(answer.failure))
            return False
        copy.busy_since, copy.timings = time.monotonic(), answer.seen or copy.timings
        asked = copy.journal.heard(answer.number)
        copy.known.add(asked.request)
        assert self._arena is not None
        self._arena.free(copy.lent.pop(answer.number))
        if asked.promises is None:  # it was answered before
            copy.done_with.extend(place for m in answer.results for place in m.places)
            return True
        for promise, message in zip(asked.promises, answer.results, strict=True):
            promise.keep(message)
        if asked.request is KEEP:
            self._keeper.took(answer.seconds)
        else:
            self._keeper.count(sum(n for message in answer.results for _, n in message.places))
        return True

    def settled(self, now: bool = False) -> None:
        """The ring is between two rounds: keep what copies are, if it is time to."""
        if self._restarts == 0:
            return
        self._outages.look()
        if self._keeper.ask_if_due(self._copies, now):
            self._until(lambda: all(map(_is_there, self._keeper.states)))
        if self._keeper.states and all(map(_is_there, self._keeper.states)):
            self._keeper.take([self._value(flag) for flag in self._keeper.flags])

    def restarts(self) -> Restarts:
        return self._outages.total()

    # when a copy dies or hangs

    def _watch(self) -> None:
        """Look for copies that don't answer in time, or are stopped."""
        now = time.monotonic()
        if now - self._looked > _ELSEWHERE:  # the driver itself was elsewhere, or stopped with them
            for copy in self._copies:
                copy.busy_since, copy.stopped_since = now, None
        self._looked = now
        for copy in self._copies:
            asked = next(iter(copy.journal.sent.values()), None)
            if asked and now - copy.busy_since > self._patience.of(asked.request, copy.known):
                self._miss(copy, asked)
                return
            if not is_stopped(copy.pid):
                copy.stopped_since = None
            elif copy.stopped_since is None:
                copy.stopped_since = now
            elif now - copy.stopped_since > STOPPED and self._restarts:
                self._revive(copy, f"was stopped for {STOPPED:g} s", killed=True)
                return

    def _miss(self, copy: ProcessProxy, asked: LoggedRequest) -> None:
        """A copy is late; one that was never there would be late again."""
        seconds = self._patience.of(asked.request, copy.known)
        began = any(member.journal.began for member in self._unit_of(copy))
        if self._restarts and (began or not is_start(asked)):
            self._revive(copy, f"answered nothing for {seconds:g} s")
            return
        late = ", ".join(copy.full_name for copy in self._copies if copy.journal.sent)
        hint = "" if copy.known else " It hangs while it starts, or needs a longer deadline."
        self._end(
            Unresponsive(f"Nothing was heard for {seconds:g} s. Asked and silent: {late}.{hint}")
        )

    def _blame(self, copy: ProcessProxy, error: BaseException) -> None:
        """Raise what a copy raised; where it only missed another one, see to that."""
        end = time.monotonic() + 1.0
        while isinstance(error, Lost) and time.monotonic() < end:
            for fd, _ in self._poll.poll(100):
                if fd == copy.channel.fileno():
                    continue
                try:
                    if not self._hear(self._by_fd[fd], self._by_fd[fd].channel.receive(0.0)):
                        return
                except Gone:
                    self._mourn(self._by_fd[fd])
                    return
        if isinstance(error, Lost | Unresponsive) and self._restarts:
            self._revive(copy, because(error))
        else:
            self._end(error)

    def _mourn(self, copy: ProcessProxy) -> None:
        how = copy.spawner.status(copy.pid, timeout=1.0) or "is gone"
        self._revive(copy, how, killed="SIGKILL" in how or "SIGTERM" in how or how == "is gone")

    def _revive(self, copy: ProcessProxy, how: str, killed: bool = False) -> None:
        """Start a copy again, and those that it has lines to, if that is decided."""
        unit = self._unit_of(copy)
        actions = [action for c in (copy, *unit) if (action := crash_record.read(c.page))]
        journals = {member.name: member.journal for member in unit}
        action = actions[0] if actions else ""
        name, journal = copy.full_name, copy.journal
        since = copy.busy_since if journal.sent else time.monotonic()
        try:
            pause = pause_or_raise(name, journal, journals, how, killed, action, self._restarts)
        except Lost as lost:
            self._end(lost)
        _log.warning("%s %s. It is started again.", name, told(journal.deaths[-1]))
        time.sleep(pause)
        self._restarted += 1
        try:
            self._keeper.abandon()
            for member in unit:
                self._bury(member)
            for member in unit:
                again = AGAIN + self._restarted
                member.journal.begin_again(member.recipe, again, self._redo, member.piece)
            self._outages.begin(journals.values(), since)
            self._start(unit)
        except BaseException as error:  # an interrupt, perhaps: copies are half started
            self._over = error
            raise
        for member in unit:
            self.send_ready(member)

    def _unit_of(self, copy: ProcessProxy) -> list[ProcessProxy]:
        mine = next(u for u in failure_units(self._plan) if (copy.piece, copy.copy) in u)
        return [c for c in self._copies if (c.piece, c.copy) in mine]

    def _bury(self, copy: ProcessProxy) -> None:
        """End a process that may live yet; what it has said until then counts."""
        if copy.spawner.status(copy.pid) is None:
            with suppress(ProcessLookupError):
                os.kill(copy.pid, signal.SIGKILL)
            copy.spawner.status(copy.pid, timeout=_GRACE)
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
        copy.stopped_since = None

    def _end(self, error: BaseException) -> NoReturn:
        self._over = error
        raise error

    def close(self) -> None:
        self._over = self._over or RondelError(
            "This run is closed and its processes are gone; rondel.load brings back what it saved."
        )
        self._keeper.abandon()
        copies, self._copies = self._copies, []
        copies = [copy for copy in copies if copy.pid]
        for copy in copies:
            with suppress(Gone, RondelError, OSError):
                copy.channel.send(None, timeout=1.0)
        starter, self._starter = self._starter, None
        if starter is not None:
            starter.close(_GRACE)
        for copy in copies:
            copy.hang_up()
            copy.journal = RequestLog(is_kept=False)  # promises and copies hold each other
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
