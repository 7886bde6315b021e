"""A range of copies on Ray: they come when a node has room, and become guests when theirs is lost.

A guest has been made again where others have their room, so that nothing it had made is lost. It
acts on if too few are left, moves when it has room again, and else goes once nothing of what it
made is needed any more. What it was is kept, as of all copies, and is what it will be.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import ray

from rondel.execution.backends.ray.errors import fault_of
from rondel.execution.backends.ray.pending_calls import PendingCall, Promise
from rondel.execution.backends.ray.placement_groups import PlacementGroups
from rondel.execution.backends.ray.proxy import RayProxy
from rondel.execution.backends.ray.recovery import Recovery
from rondel.execution.backends.ray.worker import Here, Worker, leaving, surroundings
from rondel.execution.backends.recovery.policy import AGAIN
from rondel.execution.backends.recovery.request_log import LoggedRequest
from rondel.execution.backends.wire.remote_errors import Elsewhere, unpack
from rondel.execution.requests import KEEP, MAKE, TAKE_OVER
from rondel.types import Tree

_GRACE = 5.0  # seconds for a copy to free what it holds, before it is killed
_FIRST_BAR, _LONGEST_BAR = 10.0, 600.0  # seconds for which one that died while it came waits
_AS_GUEST: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": "DEFAULT"}
_log = logging.getLogger("rondel")


class Ranges(Recovery):
    """The copies of a range, and where they are."""

    def __init__(self, deadline: float, restarts: int) -> None:
        super().__init__(deadline, restarts)
        self._rooms: PlacementGroups | None = None
        self._slots: list[RayProxy] = []  # of the range, whether they run or not

    def _listen(self, wanted: Sequence[Promise], least: int) -> None:
        """Take in what is over, until at least so many of these are."""
        raise NotImplementedError

    def get(self, promises: Sequence[Any]) -> list[Any]:
        """Their values."""
        raise NotImplementedError

    def rooms(self) -> set[int]:
        assert self._rooms is not None
        self._listen([], 0)
        for copy in self._slots:
            if copy.arrival is not None and not copy.open and copy in self._copies:
                copy.arrive(ray.get(copy.arrival.ref))
                copy.arrival, copy.pause = None, 0.0
                _log.warning("%s has come.", copy)
        now = time.monotonic()
        return {i for i in self._rooms.open() if self._slots[i].barred <= now}

    def here(self) -> list[int]:
        return [i for i, c in enumerate(self._slots) if c in self._copies and c.arrival is None]

    def coming(self) -> list[int]:
        return [i for i, copy in enumerate(self._slots) if copy.arrival is not None]

    def guests(self) -> list[int]:
        return [i for i in self.here() if self._slots[i].guest]

    def is_done(self, copy: int) -> bool:
        journal = self._slots[copy].journal
        return journal.base is not None and not journal.answered and not self._slots[copy].open

    def come(self, copy: int) -> None:
        slot = self._slots[copy]
        slot.guest = False
        slot.arrival = self._begin([slot])[0]
        self._copies.append(slot)
        if slot.journal.base is None:
            slot.begin()
        else:
            self._restarted += 1
            slot.dispatch(
                LoggedRequest(TAKE_OVER, (slot.journal.base, AGAIN + self._restarted), None)
            )

    def move(self, copies: Sequence[int]) -> None:
        for i in copies:
            _log.warning("%s moves: there is room for it again.", self._slots[i])
        self._restart([self._slots[i] for i in copies], [])

    def go(self, copy: int) -> None:
        slot = self._slots[copy]
        _log.warning("%s goes: there is no room for it.", slot)
        self._copies = [other for other in self._copies if other is not slot]
        self._keeper.abandon()
        actor, slot.actor = slot.actor, None
        closing = actor.close.remote()
        closed, _ = ray.wait([closing], timeout=_GRACE)
        ray.kill(actor)
        fault = fault_of(closing, {}) if closed else None
        if isinstance(fault, Elsewhere):  # the user's `close`
            raise unpack(fault.packed)

    def state_of(self, copy: int) -> Tree | None:
        base = self._slots[copy].journal.base
        return None if base is None else self.get([base])[0]

    def hold(self, copy: int, state: Tree) -> None:
        slot, kept = self._slots[copy], Promise()
        kept.ref, kept.call = (
            ray.put(leaving(state)),
            PendingCall(slot, LoggedRequest(KEEP, (), None), 0, 0),
        )
        kept.call.end()
        slot.journal.base = kept

    def _turn_away(self, copy: RayProxy, how: str) -> None:
        """One that was coming has died or failed. The run goes on without it, for a while."""
        copy.pause = min(_LONGEST_BAR, 2 * copy.pause or _FIRST_BAR)
        copy.barred, copy.arrival = time.monotonic() + copy.pause, None
        _log.warning("%s could not come: %s Again in %g s.", copy.name, how, copy.pause)
        self._copies = [other for other in self._copies if other is not copy]
        actor, copy.actor = copy.actor, None
        copy.open.clear()
        ray.kill(actor)

    def _begin(self, copies: list[RayProxy]) -> list[Promise]:
        """An actor for each copy -> where it will be."""
        worker, like_here = ray.remote(Worker), surroundings()

        def where() -> Here:
            context, address = ray.get_runtime_context(), ray.util.get_node_ip_address()
            node: Any = ray._private.worker._global_node
            folder = node.get_session_dir_path()  # Ray's own, on this machine
            return Here(address, context.get_node_id(), folder, str(context.get_actor_id()))

        made = []
        for copy in copies:
            options = copy.options | (_AS_GUEST if copy.guest else {})
            copy.be(worker.options(**options).remote(where))
            made += copy.ask(MAKE, copy.name, copy.last, like_here, *copy.recipe)
        return made

    def _begin_somewhere(self, copies: list[RayProxy]) -> list[Promise]:
        """The same; those of a range that have lost their room begin as guests."""
        self._see_guests(copies)
        asked = dict(zip(copies, self._begin(copies), strict=True))
        end = time.monotonic() + self._patience.first
        while time.monotonic() < end:
            waiting = [c for c in copies if c in self._slots and not c.guest]
            refs = {asked[copy].call.done: copy for copy in waiting}
            if not refs:
                break
            over, late = ray.wait(list(refs), num_returns=len(refs), timeout=1.0, fetch_local=False)
            again = self._see_guests([refs[ref] for ref in late])
            for copy in again:
                ray.kill(copy.actor)
                copy.open.clear()
            asked |= zip(again, self._begin(again), strict=True)
            if len(over) == len(refs):
                break
        return [asked[copy] for copy in copies]

    def _see_guests(self, copies: list[RayProxy]) -> list[RayProxy]:
        """Those of a range that have no room now are guests."""
        mine = [copy for copy in copies if copy in self._slots]
        if not mine or self._rooms is None:
            return []
        rooms = self._rooms.open(now=True)
        for copy in mine:
            copy.guest = copy.place[1] not in rooms
        return [copy for copy in mine if copy.guest]
