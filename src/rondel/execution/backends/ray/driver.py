"""The driver's side of all actors: starts them, sends requests, takes in receipts.

It decides nothing. What it sees it tells `Recovery`; calls that failed go to `on_errors`.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import ray
from ray.exceptions import GetTimeoutError, RayError

from rondel.execution.backends.protocol import Lost, Unresponsive
from rondel.execution.backends.ray.errors import (
    ActorDied,
    fault_in,
    fault_of,
    first_missing,
    how_of,
    outcome_of,
)
from rondel.execution.backends.ray.liveness import Liveness, Unwatched
from rondel.execution.backends.ray.pending_calls import PendingCall, Promise, lost_with
from rondel.execution.backends.ray.proxy import RayProxy
from rondel.execution.backends.ray.worker import Here, Turn, Worker, surroundings
from rondel.execution.backends.recovery import events as ev
from rondel.execution.backends.recovery.recovery import Recovery
from rondel.execution.backends.recovery.request_log import Redo
from rondel.execution.backends.wire.remote_errors import Elsewhere, unpack
from rondel.execution.requests import CONNECT, LISTEN, MAKE
from rondel.execution.telemetry.timeouts import no_answer, timeouts_for
from rondel.plan.plan import Plan, env_copies_of, has_separate_envs

_LOOK_EVERY = 1.0  # seconds
SEARCH = 2.0  # seconds to learn from Ray who died, if a copy has only missed another
AS_BORROWER: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": "DEFAULT"}
Errors: TypeAlias = Mapping[PendingCall | None, RayError]  # None: of fetching a result


class RayDriver:
    """All copies of a plan, in its order."""

    def __init__(
        self,
        plan: Plan,
        redo: Redo,
        deadline: float,
        recovery: Recovery,
        liveness: Liveness | Unwatched,
        on_errors: Callable[[Errors, Sequence[Promise]], None],
    ) -> None:
        self.plan, self.redo, self.deadline = plan, redo, deadline
        self.recovery, self.liveness, self.on_errors = recovery, liveness, on_errors
        self.every: list[RayProxy] = []  # also copies of a range that are not there
        self.homeless: set[str] = set()  # names of copies whose results are lost with a node
        self.lose_room: Callable[[list[RayProxy]], list[RayProxy]] = lambda copies: []
        self._sent = 0  # requests, ever
        self._looked = 0.0

    @property
    def copies(self) -> list[RayProxy]:
        """The copies that have an actor."""
        states = self.recovery.state.copies
        return [copy for copy in self.every if states[copy.index].present]

    def names(self) -> dict[str, str]:
        """What people call the actors, by id."""
        return {copy.id: str(copy) for copy in self.copies if copy.actor is not None}

    def next_order(self) -> int:
        """A number for a call, in the order of sending."""
        self._sent += 1
        return self._sent

    # receipts and results

    def listen(self, wanted: Sequence[Promise], least: int) -> None:
        """Take in what is over, until at least `least` of `wanted` are.

        The last call of each copy is listened to as well: it fails if the copy has failed.
        """
        while True:
            calls = [promise.call for promise in wanted if not promise.call.over]
            enough = len(wanted) - len(calls) >= least
            calls += [copy.open[-1] for copy in self.copies if copy.open]
            by_done = {call.done: call for call in calls}
            if not by_done:
                return
            patience = min(_LOOK_EVERY, self.deadline)
            errors: dict[PendingCall | None, RayError] = {}
            for done in _first_over(list(by_done), 0.0 if enough else patience):
                call, outcome = by_done[done], outcome_of(done)
                if isinstance(outcome, RayError):
                    errors[call] = outcome
                elif not call.over:
                    call.copy.settle(call, outcome)
            if errors:
                self.on_errors(errors, ())
            elif enough:
                return
            elif time.monotonic() - self._looked > patience:
                self.look()

    def look(self) -> None:
        """Tell who is waiting for others, so that those who are late can be found."""
        self.liveness.look()
        for copy in self.copies:
            self.settle_answered(copy)
        opened = [copy for copy in self.copies if copy.open]
        waiting = [c.index for c in opened if not all(i.over for i in c.open[0].inputs)]
        self.recovery.report(ev.Looked, (), waiting)
        self._looked = time.monotonic()

    def values(self, wanted: Sequence[Promise]) -> list[Any]:
        """The values of promises."""
        while True:
            self.listen(wanted, len(wanted))
            try:
                return list(ray.get([p.ref for p in wanted], timeout=self.deadline))
            except RayError as error:  # lost with the node that had it, or late
                failure = error
            if isinstance(failure, GetTimeoutError):
                raise not_come(self.deadline)
            self.on_errors({None: failure}, wanted)

    def settle_answered(self, copy: RayProxy) -> None:
        """Take note of what a copy has answered by now."""
        over = over_by_now([call.done for call in copy.open])
        for call in list(copy.open):
            if call.done not in over or isinstance(outcome := outcome_of(call.done), RayError):
                return
            copy.settle(call, outcome)

    def first_unanswered(self, call: PendingCall, error: RayError) -> PendingCall:
        """Of the calls that a copy was sent until this one, which failed, the first that did.

        News of those before it may come later than that it was not its turn.
        """
        self.settle_answered(call.copy)
        missing = first_missing(error)
        over = over_by_now([earlier.done for earlier in call.copy.open])
        for earlier in call.copy.open:
            if earlier.number == missing:
                return earlier
            if earlier.done in over and isinstance(outcome_of(earlier.done), RayError):
                return earlier
        return call

    def find_dead(self) -> ev.End | None:
        """A copy that has died, as far as Ray knows by now."""
        names = self.names()
        probes = {copy.actor.__ray_ready__.remote(): copy for copy in self.copies}
        end = time.monotonic() + SEARCH
        while probes and (left := end - time.monotonic()) > 0:
            over, _ = ray.wait(list(probes), num_returns=1, timeout=left, fetch_local=False)
            for ref in over:
                copy = probes.pop(ref)
                if isinstance(death := fault_of(ref, names), Lost):
                    return ev.End(copy.index, how_of(death), killed=True)
        return None

    # starting and restarting

    def begin(self, copies: list[RayProxy]) -> list[Promise]:
        """Make an actor for each copy -> promises of where it is."""
        worker, like_here = ray.remote(Worker), surroundings()

        def where() -> Here:
            context, address = ray.get_runtime_context(), ray.util.get_node_ip_address()
            node: Any = ray._private.worker._global_node
            folder = node.get_session_dir_path()  # Ray's own, on this machine
            return Here(address, context.get_node_id(), folder, str(context.get_actor_id()))

        made = []
        for copy in copies:
            options = copy.options | (AS_BORROWER if copy.borrows else {})
            copy.attach(worker.options(**options).remote(where))
            made += copy.ask(MAKE, copy.name, copy.last, like_here, *copy.packed)
        return made

    def start(self, together: list[RayProxy]) -> None:
        """Start copies; all of them again for as long as one dies meanwhile."""
        while True:
            alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
            gone = {copy.name for copy in together if copy.node and copy.node not in alive}
            self.homeless |= gone
            for copy in together:
                copy.open.clear()
            self.recovery.report(ev.Started, [copy.index for copy in together])
            try:
                self._start_once(together)
                return
            except (Lost, Unresponsive) as error:
                failure = error
            self.liveness.require()
            ids = {copy.id: copy for copy in together if copy.actor is not None}
            copy, how = ids.get(getattr(failure, "actor", ""), together[0]), how_of(failure)
            late = isinstance(failure, Unresponsive)
            if late:
                copy = next((copy for copy in together if copy.open), copy)
                how = f"was not there within {self.recovery.state.timeouts.first:g} s"
            self.recovery.report(ev.StartFailed, copy.index, how, late, str(failure))
            for copy in ids.values():
                ray.kill(copy.actor)

    def _start_once(self, copies: list[RayProxy]) -> None:
        made = self._begin_somewhere(copies)
        for copy, arrived in zip(copies, self._fetch(made), strict=True):
            copy.arrive(arrived)
            self.recovery.report(ev.Arrived, copy.index, str(copy))
        if has_separate_envs(self.plan):
            self._connect(copies)

    def _begin_somewhere(self, copies: list[RayProxy]) -> list[Promise]:
        """Make actors; copies of a range that have lost their room begin as borrowers."""
        self.lose_room(copies)
        asked = dict(zip(copies, self.begin(copies), strict=True))
        end = time.monotonic() + self.recovery.state.timeouts.first
        while time.monotonic() < end:
            refs = {asked[c].call.done: c for c in copies if c.ranged and not c.borrows}
            if not refs:
                break
            over, late = ray.wait(list(refs), num_returns=len(refs), timeout=1.0, fetch_local=False)
            again = self.lose_room([refs[ref] for ref in late])
            for copy in again:
                ray.kill(copy.actor)
                copy.open.clear()
            self.recovery.report(ev.Started, [copy.index for copy in again])
            asked |= zip(again, self.begin(again), strict=True)
            if len(over) == len(refs):
                break
        return [asked[copy] for copy in copies]

    def _connect(self, copies: list[RayProxy]) -> None:
        """Give policies their lines to environments."""
        with_envs = timeouts_for(self.deadline)  # below the driver's own, so that the env is named
        policy_piece = self.plan.pieces.index(self.plan.piece_of("policy"))
        envs = [copy for copy in copies if copy.place[0] == 0]
        numbers = self._fetch([env.ask(LISTEN)[0] for env in envs])
        at = {e.place[1]: (str(e), number) for e, number in zip(envs, numbers, strict=True)}
        for policy in copies:
            if policy.place[0] == policy_piece:
                mine = {e: at[e] for e in env_copies_of(self.plan, policy.place[1])}
                policy.ask(CONNECT, mine, with_envs)

    def _fetch(self, promises: list[Promise]) -> list[Any]:
        """What copies that were just started answer; raises if one dies or is late."""
        seconds = self.recovery.state.timeouts.first
        end = time.monotonic() + seconds
        self._await([promise.call.done for promise in promises], end)
        try:
            left = max(0.0, end - time.monotonic())
            values = ray.get([promise.ref for promise in promises], timeout=left)
        except GetTimeoutError:
            late = [f"{c}, asked to `{c.open[0].asked.request}`" for c in self.copies if c.open]
            problem: BaseException = Unresponsive(no_answer(seconds, late))
        except RayError as error:
            problem = self._cause_of(error)
        else:
            for promise in promises:
                call = promise.call
                if not call.over:
                    call.copy.settle(call, outcome_of(call.done))
            return values
        raise problem  # here, so that Ray's own error is not shown as its context

    def _cause_of(self, error: RayError) -> BaseException:
        """What to blame for a failed start: a dead copy, if another only missed that one."""
        fault = fault_in(error, self.names())
        cause = unpack(fault.packed) if isinstance(fault, Elsewhere) else fault
        if isinstance(fault, ActorDied) or not isinstance(cause, Lost):
            return cause
        dead = self.find_dead()
        if dead is None:
            return cause
        copy = self.every[dead.copy]
        return ActorDied(f"{copy} {dead.how}.", copy.id)

    def _await(self, dones: list[Any], end: float) -> None:
        """Wait until calls are over, or one has failed, or it is too late."""
        while dones and (left := end - time.monotonic()) > 0:
            over, dones = ray.wait(dones, timeout=min(1.0, left), fetch_local=False)
            if any(isinstance(outcome_of(done), RayError) for done in over):
                return
            self.liveness.look()

    def restart(self, asked: ev.Restart, failed: Iterable[PendingCall]) -> None:
        """Replace copies, and send again what is lost with them or has failed."""
        together = [self.every[i] for i in asked.copies]
        time.sleep(asked.pause)
        self.liveness.require()
        for copy in together:
            ray.kill(copy.actor)
        self._let_end(together)
        for copy in self.copies:  # what was answered until then counts
            self.settle_answered(copy)
        lost = lost_with(together, self.copies, [call for call in failed if not call.over])
        self.start(together)
        for copy in together:
            gone = copy.name in self.homeless
            for request in copy.log.replay(asked.episodes, self.redo, copy.place[0], gone):
                copy.dispatch(request)
        self.send_again(lost)
        self.homeless.clear()

    def send_again(self, lost: list[PendingCall]) -> None:
        """Send once more what will not be answered, in the order in which it was sent."""
        for call in lost:
            copy = call.copy
            if call in copy.open:  # the first of those that a living copy has not answered
                copy.turn = Turn(copy.turn.epoch + 1, call.number)
                copy.open = deque(c for c in copy.open if c not in lost)
                self.recovery.report(ev.Withdrawn, copy.index, len(copy.open))
            if not call.asked.request.starts:
                copy.dispatch(call.asked)

    def _let_end(self, killed: list[RayProxy]) -> None:
        """Wait until all that these were asked is over, one way or the other."""
        end = time.monotonic() + SEARCH
        while time.monotonic() < end:
            dones = [copy.open[-1].done for copy in killed if copy.open]
            if len(over_by_now(dones)) == len(dones):
                return
            time.sleep(0.02)


def not_come(deadline: float) -> Unresponsive:
    """The error for results that are made but don't reach the driver."""
    return Unresponsive(f"No result within {deadline:g} s: the network is slow or a node is lost.")


def over_by_now(dones: Collection[Any]) -> set[Any]:
    """Which calls are over."""
    if not dones:
        return set()
    over, _ = ray.wait(list(dones), num_returns=len(dones), timeout=0, fetch_local=False)
    return set(over)


def _first_over(dones: list[Any], patience: float) -> list[Any]:
    """Which calls are over by then: at least one if any."""
    over, more = ray.wait(dones, num_returns=1, timeout=patience, fetch_local=False)
    if over and more:
        over, _ = ray.wait(dones, num_returns=len(dones), timeout=0, fetch_local=False)
    return list(over)
