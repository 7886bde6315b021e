"""The calls that copies in actors have been sent and not answered, in the order of sending.

Calls are sent before their arguments are there. So when a copy dies, those of others that wait for
what it would have made are lost too, and all that these were asked behind them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Any

from rondel.execution.backends.recovery.request_log import LoggedRequest
from rondel.execution.requests import SNAPSHOT


class PendingCall:
    """Something that a copy was asked for."""

    def __init__(self, copy: Any, asked: LoggedRequest, number: int, order: int) -> None:
        self.copy, self.asked, self.number, self.order = copy, asked, number, order
        self.done: Any = None  # the reference that says that it is over
        self.over = False

    def end(self) -> None:
        """It is over. What it was given, and what it promised, is no longer held by it."""
        args = self.asked.args if self.asked.request is SNAPSHOT else ()  # names
        self.over, self.asked = True, LoggedRequest(self.asked.request, args, None)

    @property
    def inputs(self) -> Iterator[PendingCall]:
        """Calls that make what this one is given."""
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
