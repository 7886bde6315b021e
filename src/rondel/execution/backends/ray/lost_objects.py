"""What copies have made and Ray has lost: which of it, and who can make it again."""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.experimental import get_local_object_locations

from rondel.execution.backends.protocol import Lost
from rondel.execution.backends.ray.connect import is_client
from rondel.execution.backends.ray.pending_calls import PendingCall, Promise
from rondel.execution.backends.ray.proxy import RayProxy
from rondel.execution.requests import SNAPSHOT


def find_lost(
    failed: Sequence[PendingCall], wanted: Sequence[Promise], patience: float
) -> list[Promise]:
    """What is wanted, or was given to calls that failed, and is nowhere any more."""
    given = [x for call in failed for x in call.asked.args if isinstance(x, Promise)]
    made = [promise for promise in dict.fromkeys((*wanted, *given)) if promise.call.over]
    gone = lost_of([promise.ref for promise in made], patience)
    return [promise for promise in made if promise.ref in gone]


def makers_of(lost: Sequence[Promise]) -> list[RayProxy]:
    """Who would make it again if they were started again; what a copy still is, it is asked for."""
    makers = []
    for promise in lost:
        copy = promise.call.copy
        if promise.call.asked.request is SNAPSHOT:
            # who asks for one has waited for it since, so it is still the same
            copy.send(promise.call.asked._replace(promises=[promise]))
        elif copy.can_make(promise):
            makers.append(copy)
        else:
            raise Lost(
                f"Ray lost something that {copy} had made, and it can't be made again: resume "
                "from a checkpoint."
            )
    return makers


def lost_of(refs: Sequence[Any], patience: float) -> set[Any]:
    """Which of these are nowhere to be had, as far as that is known within so many seconds.

    What is only on its way by then is not lost.
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
    """Hold what was promised on the driver's own node, lest it is lost with another.

    It raises a RayError if something is lost already, or not here within so many seconds.
    """
    end = time.monotonic() + patience
    by_ref = {promise.ref: promise for promise in promises}
    for ref in _elsewhere(list(by_ref)):
        value = ray.get(ref, timeout=max(0.0, end - time.monotonic()))
        by_ref[ref].ref = ray.put(value)


def _elsewhere(refs: list[Any]) -> list[Any]:
    """Which of these lie on other nodes only."""
    if is_client():
        return refs  # who holds them is not known here; what is put goes to the head's node
    here = [ray.get_runtime_context().get_node_id()]
    at = get_local_object_locations(refs)
    return [ref for ref in at if at[ref]["node_ids"] not in ([], here)]  # small: in the driver
