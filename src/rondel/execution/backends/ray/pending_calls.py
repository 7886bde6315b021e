"""Calls that actors have been sent, and results that Ray has lost with a node.

Calls are sent before their arguments are there. So when a copy dies, those of others that wait for
its results are lost too, and all that those copies were sent after them.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.experimental import get_local_object_locations

from rondel.execution.backends.protocol import Lost
from rondel.execution.backends.ray.connect import is_client
from rondel.execution.backends.recovery.request_log import LoggedRequest
from rondel.execution.requests import SNAPSHOT


class PendingCall:
    """A call of an actor's method, with its arguments until it is over."""

    def __init__(self, copy: Any, asked: LoggedRequest, number: int, order: int) -> None:
        self.copy, self.asked, self.number, self.order = copy, asked, number, order
        self.done: Any = None  # the reference that says that it is over
        self.over = False

    def end(self) -> None:
        """Mark the call as over, and release its arguments."""
        args = self.asked.args if self.asked.request is SNAPSHOT else ()  # names
        self.over, self.asked = True, LoggedRequest(self.asked.request, args, None)

    @property
    def inputs(self) -> Iterator[PendingCall]:
        """Calls whose results are arguments of this one."""
        return (x.call for x in self.asked.args if isinstance(x, Promise))


class Promise:
    """One result of a call."""

    def __init__(self) -> None:
        self.call: PendingCall = None  # type: ignore[assignment]  # set when it is sent, perhaps again
        self.ref: Any = None


def lost_with(
    dead: Iterable[Any], copies: Iterable[Any], failed: Iterable[PendingCall]
) -> list[PendingCall]:
    """The open calls that will not be answered, in order: those of the dead, those that failed,
    those that are given what such a call makes, and those behind one of them.
    """
    lost = set(map(id, failed))
    behind = {id(copy) for copy in dead}
    found = []
    for call in sorted(chain(*(copy.open for copy in copies)), key=attrgetter("order")):
        if id(call) in lost or id(call.copy) in behind or any(id(i) in lost for i in call.inputs):
            lost.add(id(call))
            behind.add(id(call.copy))
            found.append(call)
    return found


def find_lost(
    failed: Sequence[PendingCall], wanted: Sequence[Promise], patience: float
) -> list[Promise]:
    """The results that are lost of those wanted, and of the arguments of calls that failed."""
    given = [x for call in failed for x in call.asked.args if isinstance(x, Promise)]
    made = [promise for promise in dict.fromkeys((*wanted, *given)) if promise.call.over]
    gone = lost_of([promise.ref for promise in made], patience)
    return [promise for promise in made if promise.ref in gone]


def makers_of(lost: Sequence[Promise]) -> list[Any]:
    """The copies that would make lost results again if restarted; snapshots are asked for anew."""
    makers = []
    for promise in lost:
        copy = promise.call.copy
        if promise.call.asked.request is SNAPSHOT:
            # the driver has waited for it since, so the copy's state is still the same
            copy.dispatch(promise.call.asked._replace(promises=[promise]))
        elif copy.can_make(promise):
            makers.append(copy)
        else:
            raise Lost(
                f"Ray lost a result of {copy} that can't be made again. Resume from the last "
                "checkpoint."
            )
    return makers


def lost_of(refs: Sequence[Any], patience: float) -> set[Any]:
    """Which of these are lost, as far as that is known within `patience` seconds.

    A result that is still on its way by then is not lost.
    """
    if not refs:
        return set()
    once = list(dict.fromkeys(refs))
    known, _ = ray.wait(once, num_returns=len(once), timeout=patience, fetch_local=True)
    lost = set()
    for ref in known:
        try:
            ray.get(ref, timeout=patience)
        except GetTimeoutError:  # it had to make room again
            continue
        except RayError:
            lost.add(ref)
    return lost


def bring_here(promises: Iterable[Promise], patience: float) -> None:
    """Hold results on the driver's own node, so that they are not lost with another.

    It raises a RayError if one is lost already, or not here within `patience` seconds.
    """
    end = time.monotonic() + patience
    by_ref = {promise.ref: promise for promise in promises}
    for ref in _elsewhere(list(by_ref)):
        value = ray.get(ref, timeout=max(0.0, end - time.monotonic()))
        by_ref[ref].ref = ray.put(value)


def _elsewhere(refs: list[Any]) -> list[Any]:
    """Which of these are on other nodes only."""
    if is_client():
        return refs  # unknown from outside the cluster; what is put goes to the head's node
    here = [ray.get_runtime_context().get_node_id()]
    at = get_local_object_locations(refs)
    return [ref for ref in at if at[ref]["node_ids"] not in ([], here)]  # small: in the driver
