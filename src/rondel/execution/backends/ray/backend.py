"""Every copy an actor of Ray: on this machine, or on the nodes of a cluster.

A promise is an object reference, handed on as such: a result goes from its copy's node straight to
the taker's. Only what must outlive a node is brought to the driver's, if copies may be restarted:
snapshots, and results that are still needed when those are taken. Every call has one result more
than the loop asks for, a receipt: it says that the call is over, or how it failed.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import ray
from ray.exceptions import RayError

from rondel.execution.backends.lowering import Lowering
from rondel.execution.backends.protocol import Copy, Lost, Restarts, Unresponsive, worker_factory
from rondel.execution.backends.ray.connect import end_processes, is_client, join, start_here
from rondel.execution.backends.ray.driver import SEARCH, Errors, RayDriver, not_come
from rondel.execution.backends.ray.elastic import ElasticRange
from rondel.execution.backends.ray.errors import ActorDied, ObjectLost, fault_in, fault_of, how_of
from rondel.execution.backends.ray.liveness import (
    Liveness,
    Unwatched,
    in_sentences,
    raylet_of_driver,
)
from rondel.execution.backends.ray.pending_calls import (
    PendingCall,
    Promise,
    bring_here,
    find_lost,
    lost_with,
    makers_of,
)
from rondel.execution.backends.ray.placement_groups import Reservation
from rondel.execution.backends.ray.proxy import RayProxy
from rondel.execution.backends.ray.resources import bundles_of
from rondel.execution.backends.recovery import events as ev
from rondel.execution.backends.recovery.recovery import Recovery
from rondel.execution.backends.recovery.request_log import Redo, RequestLog
from rondel.execution.backends.wire.remote_errors import Elsewhere, unpack
from rondel.execution.backends.wire.worker_spec import pack
from rondel.execution.hostenv.host_envs import HostEnvs
from rondel.execution.telemetry.timeouts import timeouts_for
from rondel.plan.plan import Plan, copy_name, has_separate_envs

_GRACE = 5.0  # seconds for copies to free what they hold, before they are killed


class Ray:
    """The backend of Ray's actors.

    By default a cluster is started here for the run; `address` names one that runs already, as
    does RAY_ADDRESS, and a program that has called `ray.init` keeps its own. `resources` has what a
    copy of each piece asks for: {"cpu": 1, "gpu": 1, "memory": bytes}, or names of the cluster's
    own; by default one CPU each. A call may take `deadline` seconds, twice that if it waits for
    environments elsewhere, and at least a minute to start and for the first of its kind.
    `restarts`: how often a copy that died or hangs is started again without progress; 0 ends the
    run instead.

    Its parts: `driver` sends requests and starts actors, `recovery` decides what becomes of those
    that fail, `elastic` has the copies of a range, and `liveness` looks after Ray itself.
    """

    driver: RayDriver
    recovery: Recovery
    elastic: ElasticRange | None = None

    def __init__(
        self,
        address: str | None = None,
        resources: Sequence[Mapping[str, float]] | None = None,
        deadline: float = 600.0,
        restarts: int = 0,
    ) -> None:
        self._address, self._resources = address, resources
        self._deadline, self._restarts = deadline, restarts
        self._timeouts = timeouts_for(deadline)
        self.liveness: Liveness | Unwatched = Unwatched()
        self._reservation: Reservation | None = None
        self._joined = False  # was `ray.init` called here?
        self._started = False  # and was the cluster started here?
        self._launched = False
        self._failed: list[PendingCall] = []  # to be sent again by the next restart
        self._must_wait = False  # for the snapshots that were asked for just now

    @in_sentences
    def launch(self, task: Any, lowering: Lowering) -> list[list[Copy]]:
        plan = lowering.plan
        bundles = bundles_of(plan, self._resources)
        workers = [
            worker_factory(task, plan, piece, copy)
            for piece, (_, copies, _) in enumerate(plan.pieces)
            for copy in range(copies)
        ]
        needs_jax = [make is not HostEnvs for make, _ in workers]
        packed = list(zip(needs_jax, pack(workers), strict=True))
        if has_separate_envs(plan):  # a policy first names the environment that is late
            self._timeouts = self._timeouts.twice()
        try:
            self._join_cluster(sum(len(b[: plan.pieces[i].least]) for i, b in enumerate(bundles)))
            if not is_client():
                self.liveness = liveness = Liveness()
                liveness.watch(raylet_of_driver(self._started))
            self._reservation = Reservation(plan, bundles, self._timeouts.first)
            self.compose(plan, Redo(plan, task))
            pieces = self._make_copies(plan, packed, self._reservation)
            self.driver.start(self.driver.copies)
        except BaseException:
            self.close()
            raise
        return pieces

    def _join_cluster(self, copies: int) -> None:
        if ray.is_initialized():
            return
        address = self._address or os.environ.get("RAY_ADDRESS") or "local"
        if address != "local":
            join(address)
        elif self._resources is None:  # copies may share cores, as processes do
            start_here(num_cpus=max(copies, len(os.sched_getaffinity(0))))
        else:
            start_here()
        self._joined, self._started = True, address == "local"

    def compose(self, plan: Plan, redo: Redo) -> None:
        """Make the parts."""
        room = self._reservation.open() if self._reservation else ()
        absent = [
            (p, c)
            for p, piece in enumerate(plan.pieces)
            for c in range(piece.copies)
            if piece.least is not None and c not in room
        ]
        obey: dict[type, Callable[[Any], None]] = {
            ev.Restart: lambda asked: self.driver.restart(asked, self._failed),
            ev.FindCause: self._find_cause,
            ev.Inspect: lambda asked: self._died([asked.end]),
            ev.TurnAway: self._turn_away,
            ev.TakeSnapshots: self._take_snapshots,
        }
        self.recovery = Recovery(plan, self._restarts, self._timeouts, obey, _end, absent)
        self.driver = RayDriver(
            plan, redo, self._deadline, self.recovery, self.liveness, self._on_errors
        )
        self._launched = True

    def _make_copies(
        self, plan: Plan, workers: list[tuple[bool, bytes]], reservation: Reservation
    ) -> list[list[Any]]:
        pieces: list[list[Any]] = [[] for _ in plan.pieces]
        for index, worker in enumerate(workers):
            piece = next(p for p, made in enumerate(pieces) if len(made) < plan.pieces[p].copies)
            i = len(pieces[piece])
            copy = RayProxy(self.driver, index, (piece, i), copy_name(plan, piece, i))
            copy.packed = worker
            copy.log = RequestLog(self.recovery.state.copies[index].has_snapshots, reads=True)
            copy.ranged = plan.pieces[piece].least is not None
            copy.options = reservation.options(piece, i)
            pieces[piece].append(copy)
            self.driver.every.append(copy)
        if any(copy.ranged for copy in self.driver.every):
            self.elastic = ElasticRange(self.driver, reservation)
        return pieces

    @in_sentences
    def get(self, promises: Sequence[Any]) -> list[Any]:
        from rondel.execution.stages.task import to_device

        values = iter(self.driver.values([p for p in promises if isinstance(p, Promise)]))
        # copied: what the store gives is read-only, and gone with the cluster
        return [to_device(next(values)) if isinstance(p, Promise) else p for p in promises]

    @in_sentences
    def wait(self, promises: Sequence[Any]) -> list[int]:
        mine = [promise for promise in promises if isinstance(promise, Promise)]
        if mine:
            self.driver.listen(mine, 0 if len(mine) < len(promises) else 1)
        return [i for i, p in enumerate(promises) if not isinstance(p, Promise) or p.call.over]

    def restarts(self) -> Restarts:
        return self.recovery.restarts()

    # snapshots

    @in_sentences
    def after_round(self, now: bool = False) -> None:
        self.liveness.look()
        self._must_wait = False
        self.recovery.report(ev.RoundEnded, now)
        asked = self.recovery.snapshots
        states = [state for _, _, state in asked]
        if not states or not all(state.call.over for state in states):
            return
        refs = [state.ref for state in states]
        patience = self._deadline if self._must_wait else 0.0  # else they come in their own time
        here, _ = ray.wait(refs, num_returns=len(refs), timeout=patience, fetch_local=True)
        if len(here) < len(refs):
            if self._must_wait:
                raise not_come(self._deadline)
            return
        began = time.monotonic()
        try:
            flags = ray.get([flag.ref for _, flag, _ in asked], timeout=self._deadline)
            older = [made for c in self.driver.copies for made in c.log.results_until_snapshot()]
            needed = [promise for made in older if (promise := made())]
            bring_here([*states, *needed], self._deadline)
        except RayError:  # lost on their way, or late: logs still have all of it
            self.recovery.report(ev.SnapshotsFailed)
            return
        self.recovery.keep_snapshots(flags, time.monotonic() - began)

    def _take_snapshots(self, asked: ev.TakeSnapshots) -> None:
        copies = [self.driver.every[i] for i in self.recovery.state.here]
        self.recovery.ask_for_snapshots(asked.number, copies)
        if asked.wait:
            self._must_wait = True
            states = [state for _, _, state in self.recovery.snapshots]
            self.driver.listen(states, len(states))

    # failures: what has happened is found out here, what to do is `recovery`'s to decide

    def _on_errors(self, errors: Errors, wanted: Sequence[Promise]) -> None:
        """Find out what is behind errors of Ray's, and report it."""
        self.liveness.require()
        names, states = self.driver.names(), self.recovery.state.copies
        by_id = {copy.id: copy.index for copy in self.driver.copies if copy.actor is not None}
        ends: dict[int, ev.End] = {}
        missed: list[tuple[int, Lost | Unresponsive]] = []
        lost: list[ObjectLost] = []
        for call, error in errors.items():
            fault = fault_in(error, names)
            if call is not None and not states[call.copy.index].present:
                continue  # it was turned away just now
            if call is not None and states[call.copy.index].coming:
                self._died([ev.End(call.copy.index, f"failed: {_words(fault)}")])
            elif isinstance(fault, ActorDied):
                i = by_id[fault.actor]
                ends[i] = ev.End(i, how_of(fault), killed=True)
            elif isinstance(fault, ObjectLost):
                lost.append(fault)
            elif isinstance(fault, Elsewhere):
                problem = unpack(fault.packed)
                if call is None or not isinstance(problem, Lost | Unresponsive):
                    raise problem  # the user's own
                missed.append((call.copy.index, problem))
        if not (ends or missed or lost):
            return
        self._failed = [
            self.driver.first_unanswered(call, error)
            for call, error in errors.items()
            if call is not None and call.copy.actor is not None
        ]
        try:
            if ends:
                self._died(list(ends.values()))
            elif missed:
                i, failure = missed[0]
                late = isinstance(failure, Unresponsive)
                self.recovery.report(ev.Missed, i, str(failure), late)
            else:
                self._search(str(lost[0]), wanted)
        finally:
            self._failed = []

    def _died(self, ends: list[ev.End]) -> None:
        """Report deaths; what the dead were doing is only known once others are in their place."""
        states = self.recovery.state.copies
        before = {end.copy: (states[end.copy].name, len(states[end.copy].deaths)) for end in ends}
        self.recovery.report(ev.Died, tuple(ends))
        for i, (name, death) in before.items():
            if len(states[i].deaths) > death:
                self._explain(i, name, death)

    def _explain(self, i: int, name: str, death: int) -> None:
        unit = [self.driver.every[j].before for j in (i, *self.recovery.state.unit(i))]
        killed = self.recovery.state.copies[i].deaths[death].killed
        ended = [remains for remains in unit if remains.ended]
        hung = [remains for remains in unit if remains.action and not killed]
        for remains in (*ended, *hung)[:1]:
            self.recovery.report(ev.Explained, i, name, death, remains.action, remains.ended)

    def _find_cause(self, asked: ev.FindCause) -> None:
        if dead := self.driver.find_dead():
            self._died([dead])
        else:
            self.recovery.report(lambda now: asked.missed._replace(time=now, searched=True))

    def _search(self, sentence: str, wanted: Sequence[Promise]) -> None:
        """Calls missed a result: find out who is dead, or who can make it again."""
        if dead := self.driver.find_dead():
            self._died([dead])
        elif lost := find_lost(self._failed, wanted, SEARCH):
            makers = dict.fromkeys(makers_of(lost))
            self.driver.homeless |= {copy.name for copy in makers}
            how = "lost a result that it had made"
            if makers:
                self._died([ev.End(copy.index, how, killed=True) for copy in makers])
        else:
            self.recovery.report(ev.NobodyDied, sentence)
            self.driver.send_again(lost_with([], self.driver.copies, self._failed))

    def _turn_away(self, asked: ev.TurnAway) -> None:
        assert self.elastic is not None, "only copies of a range come while the run goes on"
        self.elastic.turn_away(asked)

    @in_sentences
    def close(self) -> None:
        """Let copies free what they hold, then end them, and Ray if it was started here."""
        liveness, self.liveness = self.liveness, Unwatched()
        liveness.end()
        copies: list[RayProxy] = []
        if self._launched:
            self.recovery.forget()
            copies = [copy for copy in self.driver.every if copy.actor is not None]
            self.driver.every, self.elastic = [], None
        reservation, self._reservation = self._reservation, None
        joined, self._joined = self._joined, False
        if not ray.is_initialized():
            return
        if liveness.node_is_gone:  # its actors went with it, and those elsewhere because of it
            copies, reservation = [], None
        closed: list[Any] = []
        try:
            if copies:
                closing = [copy.actor.close.remote() for copy in copies]
                closed, _ = ray.wait(closing, num_returns=len(closing), timeout=_GRACE)
        finally:
            if liveness.head_is_gone:  # the head would kill them, and give back what they had
                for copy in copies:
                    copy.actor.end.remote()
            else:
                for copy in copies:
                    ray.kill(copy.actor)
                if reservation is not None:
                    reservation.close()
            faults = [fault_of(ref, {}) for ref in closed]
            if joined:
                if self._started and (liveness.node_is_gone or liveness.head_is_gone):
                    end_processes(liveness.raylet.agents)
                ray.shutdown()
        for fault in faults:
            if isinstance(fault, Elsewhere):  # the user's `close`; the dead have nothing to free
                raise unpack(fault.packed)


def _end(error: BaseException) -> NoReturn:
    raise error


def _words(fault: BaseException) -> str:
    error = unpack(fault.packed) if isinstance(fault, Elsewhere) else fault
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
