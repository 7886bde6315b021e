"""A range of copies on Ray: they come when a node has room, and become guests when theirs is lost.

A guest has been made again where others have their room, so that nothing it had made is lost; it
acts on only if too few are left, and goes when it has nothing more to do.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import ray

from rondel.execution.backends.actor import Worker, surroundings
from rondel.execution.backends.journal import Journal
from rondel.execution.backends.ledger import Promise
from rondel.execution.backends.ray.copy import RayCopy
from rondel.execution.backends.ray.recovery import Recovery
from rondel.execution.backends.ray.rooms import Rooms

_AS_GUEST: dict[str, Any] = {
    "num_cpus": 0,
    "num_gpus": 0,
    "memory": None,
    "resources": {},
    "scheduling_strategy": "DEFAULT",
}
_log = logging.getLogger("rondel")


class Ranges(Recovery):
    """The copies of a range, and where they are."""

    def __init__(self, deadline: float, restarts: int) -> None:
        super().__init__(deadline, restarts)
        self._rooms: Rooms | None = None
        self._slots: list[RayCopy] = []  # of the range, whether they run or not

    def _listen(self, wanted: Sequence[Promise], least: int) -> None:
        """Take in what is over, until at least so many of these are."""
        raise NotImplementedError

    def ready(self, promises: Sequence[Promise]) -> list[int]:
        self._listen(promises, 0)
        return [i for i, promise in enumerate(promises) if promise.call.over]

    def rooms(self) -> frozenset[int]:
        assert self._rooms is not None
        for copy in self._slots:
            if copy.arrival is not None and copy.arrival.call.over:
                copy.process, copy.address, copy.node = ray.get(copy.arrival.ref)
                copy.arrival = None
                _log.warning("%s has come.", copy)
        return self._rooms.open()

    def here(self) -> list[int]:
        return [i for i, copy in enumerate(self._slots) if copy in self._copies]

    def guests(self) -> list[int]:
        return [i for i, copy in enumerate(self._slots) if copy in self._copies and copy.guest]

    def come(self, copy: int) -> None:
        slot = self._slots[copy]
        slot.guest, slot.journal = False, Journal(is_kept=self._restarts > 0, reads=True)
        slot.arrival = self._begin([slot])[0]
        self._copies.append(slot)

    def go(self, copy: int) -> None:
        slot = self._slots[copy]
        self._copies = [other for other in self._copies if other is not slot]
        _log.warning("%s has gone: there is no room for it.", slot)
        slot.actor.close.remote()
        slot.actor.__ray_terminate__.remote()
        slot.actor = None
        slot.open.clear()

    def _begin(self, copies: list[RayCopy]) -> list[Promise]:
        """An actor for each copy -> where it will be."""
        worker, like_here = ray.remote(Worker), surroundings()

        def where() -> tuple[str, str]:
            return ray.util.get_node_ip_address(), ray.get_runtime_context().get_node_id()

        for copy in copies:
            options = copy.options | (_AS_GUEST if copy.guest else {})
            copy.be(worker.options(**options).remote(where))
        return [copy.ask("make", copy.name, like_here, *copy.recipe)[0] for copy in copies]

    def _begin_somewhere(self, copies: list[RayCopy]) -> list[Promise]:
        """The same; those of a range that have lost their room begin as guests."""
        self._see_guests(copies)
        asked = dict(zip(copies, self._begin(copies), strict=True))
        end = time.monotonic() + self._deadline
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

    def _see_guests(self, copies: list[RayCopy]) -> list[RayCopy]:
        """Those of a range that have no room now are guests."""
        mine: list[Any] = [copy for copy in copies if copy in self._slots]
        if not mine or self._rooms is None:
            return []
        rooms = self._rooms.open(now=True)
        for copy in mine:
            copy.guest, copy.arrival = copy.place[1] not in rooms, None
        return [copy for copy in mine if copy.guest]
