"""What is done when an actor of Ray dies or hangs, or something is lost with its node."""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from rondel.execution.backends.protocol import Lost, Restarts, Unresponsive
from rondel.execution.backends.ray.errors import (
    ActorDied,
    ObjectLost,
    fault_in,
    fault_of,
    first_missing,
    how_of,
    outcome_of,
)
from rondel.execution.backends.ray.liveness import Liveness, Unwatched
from rondel.execution.backends.ray.lost_objects import find_lost, makers_of
from rondel.execution.backends.ray.pending_calls import PendingCall, Promise, lost_with
from rondel.execution.backends.ray.proxy import RayProxy
from rondel.execution.backends.ray.worker import Turn
from rondel.execution.backends.recovery.downtime import Downtime
from rondel.execution.backends.recovery.policy import AGAIN
from rondel.execution.backends.recovery.request_log import (
    LoggedRequest,
    Redo,
    is_start,
    pause_or_raise,
    stop_if_hopeless,
)
from rondel.execution.backends.recovery.snapshots import Snapshots
from rondel.execution.backends.wire.remote_errors import Elsewhere, unpack
from rondel.execution.requests import TAKE_OVER
from rondel.execution.telemetry.timeouts import START, timeouts_for
from rondel.plan.plan import Plan, failure_units

_MOURNING = 2.0  # seconds to learn from Ray who died, where a copy has only missed another
_PAUSE = 0.5  # seconds before what Ray lost is asked again, if nobody died as far as it knows
_log = logging.getLogger("rondel")


class Recovery:
    """The copies of a run, and how those that are lost are made again."""

    def __init__(self, deadline: float, restarts: int) -> None:
        self._deadline, self._restarts = deadline, restarts
        self._patience = timeouts_for(deadline)
        self._plan: Plan
        self._redo: Redo
        self._copies: list[RayProxy] = []
        self._keeper = Snapshots()
        self._outages = Downtime()
        self.liveness: Liveness | Unwatched = Unwatched()
        self._homeless: set[str] = set()  # names of copies whose node took along what they made
        self._missed: float | None = None  # since when something is lost, and nobody has died
        self._restarted = 0  # times that copies were started again

    def _start(self, copies: list[RayProxy]) -> None:
        """An actor for each copy."""
        raise NotImplementedError

    def _turn_away(self, copy: RayProxy, how: str) -> None:
        """A copy that was on its way to a run that goes on without it has died or failed."""
        raise NotImplementedError

    def restarts(self) -> Restarts:
        """How often copies were started again, and how long that took."""
        return self._outages.total()

    def is_gone(self, copy: RayProxy) -> bool:
        """Did what a copy had made go with its node?"""
        return copy.name in self._homeless

    def _names(self) -> dict[str, str]:
        return {copy.id: str(copy) for copy in self._copies if copy.actor is not None}

    def _watch(self) -> None:
        """Look for copies that have all that they need and don't answer in time."""
        self.liveness.look()
        now = time.monotonic()
        for copy in self._copies:
            self._settle_answered(copy)
            ready = copy.open and all(call.over for call in copy.open[0].inputs)
            if not ready:
                copy.busy_since = now
                continue
            request = copy.open[0].asked.request
            seconds = self._patience.of(request, copy.known)
            if now - copy.busy_since > seconds:
                if self._restarts == 0:
                    raise Unresponsive(self._who_is_late(seconds))
                how = f"answered nothing to `{request}` for {seconds:g} s"
                if copy.arrival is not None:
                    self._turn_away(copy, f"it {how}.")
                else:
                    self._revive({copy: how}, [], killed=False)
                return

    def _recover(
        self, errors: Mapping[PendingCall | None, RayError], wanted: Sequence[Promise] = ()
    ) -> None:
        """Start those again who died; what was lost with them is asked again. Or raise.

        An error of no call is one of fetching what is `wanted`.
        """
        self.liveness.require()
        ids = {copy.id: copy for copy in self._copies}
        dead: dict[RayProxy, str] = {}
        told: list[BaseException] = []
        for call, error in errors.items():
            fault = fault_in(error, self._names())
            if call is not None and call.copy.arrival is not None:
                self._turn_away(call.copy, str(fault))
                continue
            if isinstance(fault, ObjectLost):
                told.append(fault)
                continue
            problem = self._behind(fault)
            told.append(problem)
            if not isinstance(problem, Lost | Unresponsive):
                raise problem
            if (who := getattr(problem, "actor", "")) in ids:
                dead[ids[who]] = how_of(problem)
            elif call is not None:
                dead[call.copy] = how_of(problem)
        if not told:
            return
        if self._restarts == 0:
            raise next((t for t in told if not isinstance(t, ObjectLost)), self._behind(told[0]))
        failed = [
            self._first_unanswered(call, error)
            for call, error in errors.items()
            if call is not None and call.copy.actor is not None
        ]
        if not dead:  # some have only missed others; who is it?
            dead = {copy: how_of(death) for copy, death in self._find_dead()}
        if dead:
            self._revive(dead, failed, killed=not any(isinstance(t, Unresponsive) for t in told))
        elif lost := find_lost(failed, wanted, _MOURNING):
            makers = makers_of(lost)
            self._revive(dict.fromkeys(makers, "lost something that it had made"), failed, makers)
        else:  # it was mended already, or Ray takes its time, some 15 s, to see that a node is lost
            now = time.monotonic()
            self._missed = now if self._missed is None else self._missed
            if now - self._missed > START:
                raise Lost(f"Ray lost something again and again, although nobody died: {told[0]}")
            time.sleep(_PAUSE)
            self._ask_again(lost_with([], self._copies, failed))

    def _first_unanswered(self, call: PendingCall, error: RayError) -> PendingCall:
        """Of the calls that a copy was asked until this one, which failed, the first that did.

        News of those before it may come later than that it was not its turn.
        """
        self._settle_answered(call.copy)
        missing = first_missing(error)
        dones = [earlier.done for earlier in call.copy.open]
        over = _over(dones)
        for earlier in call.copy.open:
            if earlier.number == missing:
                return earlier
            if earlier.done in over and isinstance(outcome_of(earlier.done), RayError):
                return earlier
        return call

    def _settle_answered(self, copy: RayProxy) -> None:
        """Take note of what a copy has answered by now."""
        over = _over([call.done for call in copy.open])
        for call in list(copy.open):
            if call.done not in over:
                return
            if isinstance(outcome := outcome_of(call.done), RayError):
                return
            copy.settle(call)
            self._keeper.count(copy.took(outcome))

    def _find_dead(self) -> list[tuple[RayProxy, Lost]]:
        """Who has died, as far as Ray knows by now."""
        names = self._names()
        probes = {copy.actor.__ray_ready__.remote(): copy for copy in self._copies}
        end = time.monotonic() + _MOURNING
        while probes and (left := end - time.monotonic()) > 0:
            over, _ = ray.wait(list(probes), num_returns=1, timeout=left, fetch_local=False)
            for ref in over:
                copy = probes.pop(ref)
                if isinstance(death := fault_of(ref, names), Lost):
                    return [(copy, death)]
        return []

    def _revive(
        self,
        dead: dict[RayProxy, str],
        failed: list[PendingCall],
        makers: Sequence[RayProxy] = (),
        killed: bool = True,
    ) -> None:
        """Start copies again, and those that they have lines to, if that is decided.

        What the `makers` had made is lost although their nodes are there.
        """
        for copy in [copy for copy in dead if copy.arrival is not None]:
            self._turn_away(copy, f"it {dead.pop(copy)}.")
        if not dead:
            return
        together: list[RayProxy] = []
        since = min(copy.busy_since if copy.open else time.monotonic() for copy in dead)
        died = {}  # who, and which of the copy's deaths it was: to start it again may fail too
        for copy, how in dead.items():
            unit = self._unit_of(copy)
            together += [c for c in unit if c not in together]
            died[copy] = str(copy), len(copy.journal.deaths)
            self._decide(copy, unit, how, killed)
        self._homeless |= {copy.name for copy in makers}
        self._restart(together, failed)
        self._outages.begin([copy.journal for copy in together], since)
        for copy, (name, at) in died.items():
            self._judge(copy, name, at)

    def _unit_of(self, copy: RayProxy) -> list[RayProxy]:
        mine = next(unit for unit in failure_units(self._plan) if copy.place in unit)
        return [c for c in self._copies if c.place in mine]

    def _judge(self, copy: RayProxy, name: str, at: int) -> None:
        """What the dead were doing is only known once others are in their places."""
        unit, deaths = self._unit_of(copy), copy.journal.deaths
        left = [member.before for member in (copy, *unit)]
        ended = [remains for remains in left if remains.ended]
        hung = [r for r in left if r.action and not deaths[at].killed]
        for remains in (*ended, *hung)[:1]:
            stop_if_hopeless(name, deaths, at, *remains, self._restarts)

    def _restart(self, together: list[RayProxy], failed: list[PendingCall]) -> None:
        """End copies and make them again, with all that they were and were asked."""
        self.liveness.require()
        self._keeper.abandon()
        self._restarted += 1
        self._missed = None
        for copy in together:
            ray.kill(copy.actor)
        self._let_end(together)
        for copy in self._copies:  # what was answered until then counts
            self._settle_answered(copy)
        lost = lost_with(together, self._copies, [call for call in failed if not call.over])
        self._start_until_all_are_there(together)
        for copy in together:
            self._replay(copy)
        self._ask_again(lost)
        self._homeless.clear()

    def _start_until_all_are_there(self, together: list[RayProxy]) -> None:
        """An actor for each copy; all are started again if one dies meanwhile, or it is raised."""
        while True:
            alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
            gone = {copy.name for copy in together if copy.node and copy.node not in alive}
            self._homeless |= gone
            for copy in together:
                copy.open.clear()
            try:
                self._start(together)
                return
            except (Lost, Unresponsive) as death:
                self.liveness.require()
                ids = {copy.id: copy for copy in together if copy.actor is not None}
                copy, how = ids.get(getattr(death, "actor", ""), together[0]), how_of(death)
                if isinstance(death, Unresponsive):
                    copy = next((copy for copy in together if copy.open), copy)
                    how = f"was not there within {self._patience.first:g} s"
                unit = self._unit_of(copy)
                began = any(member.journal.began for member in unit)
                # one that was never there would be late again
                if self._restarts == 0 or (isinstance(death, Unresponsive) and not began):
                    raise
                self._decide(copy, unit, how, killed=True)
                for copy in ids.values():
                    ray.kill(copy.actor)

    def _decide(self, copy: RayProxy, unit: list[RayProxy], how: str, killed: bool) -> None:
        """Wait as long as a restart must, or raise; what an actor was doing is not known yet."""
        journals = {member.name: member.journal for member in unit}
        pause = pause_or_raise(str(copy), copy.journal, journals, how, killed, "", self._restarts)
        _log.warning("%s %s. It is started again.", copy, how)
        time.sleep(pause)

    def _replay(self, copy: RayProxy) -> None:
        """Make a new copy what the old one was."""
        journal, again = copy.journal, AGAIN + self._restarted
        answered = journal.replay(again, self._redo, copy.place[0], self.is_gone(copy))
        journal.answered, journal.progress = [], False
        if journal.base is not None:
            copy.dispatch(LoggedRequest(TAKE_OVER, (journal.base, again), None))
        for asked in answered:
            copy.dispatch(asked)

    def _let_end(self, killed: list[RayProxy]) -> None:
        """Wait until all that these were asked is over, one way or the other."""
        end = time.monotonic() + _MOURNING
        while time.monotonic() < end:
            dones = [copy.open[-1].done for copy in killed if copy.open]
            if len(_over(dones)) == len(dones):
                return
            time.sleep(0.02)

    def _ask_again(self, lost: list[PendingCall]) -> None:
        """Send once more what will not be answered, in the order in which it was sent."""
        for call in lost:
            copy = call.copy
            if call in copy.open:  # the first of those that a living copy has not answered
                copy.turn = Turn(copy.turn.epoch + 1, call.number)
                copy.open = deque(c for c in copy.open if c not in lost)
            if not is_start(call.asked):
                copy.dispatch(call.asked)

    def _behind(self, fault: BaseException) -> BaseException:
        """What to blame: where a copy only missed another one, what became of that."""
        error = unpack(fault.packed) if isinstance(fault, Elsewhere) else fault
        if isinstance(fault, ActorDied) or not isinstance(error, Lost | ObjectLost):
            return error
        dead = self._find_dead()
        return dead[0][1] if dead else error

    def _who_is_late(self, seconds: float) -> str:
        """Those who have all that they need and still don't answer, not those who wait for them."""
        first = [copy.open[0] for copy in self._copies if copy.open]
        busy = [call for call in first if all(i.over for i in call.inputs)] or first
        said = ", ".join(f"{call.copy} with `{call.asked.request}`" for call in busy)
        return (
            f"Nothing was heard for {seconds:g} s. Late: {said}. It hangs, or needs a "
            "longer deadline."
        )


def _over(dones: list[Any]) -> set[Any]:
    """Which of these are over by now."""
    if not dones:
        return set()
    over, _ = ray.wait(dones, num_returns=len(dones), timeout=0, fetch_local=False)
    return set(over)
