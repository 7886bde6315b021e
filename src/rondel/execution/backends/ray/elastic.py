"""A range of copies on Ray, such as `actor*4..16`: copies join and leave as nodes do.

A copy joins when a node has resources for it. If its node is lost, it restarts as a borrower on
resources of others, so that none of its results is lost. A borrower moves once a node has resources
again. Else it leaves when its results are not needed any more, unless fewer than the least number
of copies would be left. Its last snapshot is kept, and it restarts from that when it joins again.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import time
from collections.abc import Sequence

import ray

from rondel.execution.backends.ray.driver import RayDriver
from rondel.execution.backends.ray.errors import fault_of
from rondel.execution.backends.ray.liveness import in_sentences
from rondel.execution.backends.ray.pending_calls import PendingCall, Promise
from rondel.execution.backends.ray.placement_groups import Reservation
from rondel.execution.backends.ray.proxy import RayProxy
from rondel.execution.backends.ray.worker import leaving
from rondel.execution.backends.recovery import events as ev
from rondel.execution.backends.recovery.request_log import LoggedRequest
from rondel.execution.backends.wire.remote_errors import Elsewhere, unpack
from rondel.execution.requests import KEEP, TAKE_OVER
from rondel.types import Tree

_GRACE = 5.0  # seconds for a copy to free what it holds, before it is killed


class ElasticRange:
    """The copies of a range, by their number in it."""

    def __init__(self, driver: RayDriver, reservation: Reservation) -> None:
        self._driver, self._reservation, self.liveness = driver, reservation, driver.liveness
        self.slots = [copy for copy in driver.every if copy.ranged]  # there or not
        self._states = [driver.recovery.state.copies[copy.index] for copy in self.slots]
        driver.lose_room = self._mark_borrowers

    @in_sentences
    def rooms(self) -> set[int]:
        """The copies that the cluster has resources for, whether they run or not."""
        self._driver.listen([], 0)
        for slot, state in zip(self.slots, self._states, strict=True):
            if state.coming and slot.arrival is not None and not slot.open:
                slot.arrive(ray.get(slot.arrival.ref))
                self._driver.recovery.report(ev.Arrived, slot.index, str(slot))
        now, states = time.monotonic(), self._states
        return {i for i in self._reservation.open() if states[i].may_come_at <= now}

    def here(self) -> list[int]:
        """The copies that run."""
        return [i for i, state in enumerate(self._states) if state.present and not state.coming]

    def coming(self) -> list[int]:
        """The copies that were started and are not ready yet."""
        return [i for i, state in enumerate(self._states) if state.coming]

    def borrowers(self) -> list[int]:
        """The copies that run on another copy's node."""
        return [i for i in self.here() if self.slots[i].borrows]

    def is_done(self, copy: int) -> bool:
        """Will nothing that a copy has made be requested again, whatever fails?"""
        log = self.slots[copy].log
        return log.base is not None and not log.answered and not self.slots[copy].open

    @in_sentences
    def come(self, copy: int) -> None:
        """Start a copy with its last state, without waiting for it."""
        slot, recovery = self.slots[copy], self._driver.recovery
        slot.borrows = False
        recovery.report(ev.Started, [slot.index])
        recovery.report(ev.Coming, slot.index)
        slot.arrival = self._driver.begin([slot])[0]
        if slot.log.base is None:
            slot.begin()
        else:
            take_over = (slot.log.base, recovery.state.episodes)
            slot.dispatch(LoggedRequest(TAKE_OVER, take_over, None))

    @in_sentences
    def move(self, copies: Sequence[int]) -> None:
        """Move borrowers to nodes that have resources for them."""
        self._driver.recovery.report(ev.Moved, tuple(self.slots[i].index for i in copies))

    @in_sentences
    def go(self, copy: int) -> None:
        """End a copy and keep its state."""
        slot = self.slots[copy]
        self._driver.recovery.report(ev.Left, slot.index)
        actor, slot.actor = slot.actor, None
        closing = actor.close.remote()
        closed, _ = ray.wait([closing], timeout=_GRACE)
        ray.kill(actor)
        fault = fault_of(closing, {}) if closed else None
        if isinstance(fault, Elsewhere):  # the user's `close`
            raise unpack(fault.packed)

    def turn_away(self, asked: ev.TurnAway) -> None:
        """End a copy that could not start."""
        slot = self._driver.every[asked.copy]
        actor, slot.actor, slot.arrival = slot.actor, None, None
        slot.open.clear()
        ray.kill(actor)

    @in_sentences
    def state_of(self, copy: int) -> Tree | None:
        """The state of a copy when it ended; None if it never ran."""
        from rondel.execution.stages.task import to_device

        base = self.slots[copy].log.base
        return None if base is None else to_device(self._driver.values([base])[0])

    def hold(self, copy: int, state: Tree) -> None:
        """Set the state with which a copy that does not run will start."""
        slot, kept = self.slots[copy], Promise()
        kept.ref = ray.put(leaving(state))
        kept.call = PendingCall(slot, LoggedRequest(KEEP, (), None), 0, 0)
        kept.call.end()
        slot.log.base = kept

    def _mark_borrowers(self, copies: list[RayProxy]) -> list[RayProxy]:
        """Those of a range that have no room now are borrowers -> these."""
        mine = [copy for copy in copies if copy.ranged]
        if not mine:
            return []
        rooms = self._reservation.open(now=True)
        for copy in mine:
            copy.borrows = copy.place[1] not in rooms
        return [copy for copy in mine if copy.borrows]
