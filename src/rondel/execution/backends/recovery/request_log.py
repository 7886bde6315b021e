"""The requests of one copy since its last snapshot, so that a new incarnation can redo them.

A copy is a function of its messages: its last snapshot and the requests since make it again. What
it had answered before, it answers once more for nobody.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple
from weakref import ref

from rondel.execution.requests import BEGIN, KEEP, MAKE, PRODUCE, TAKE_OVER, Request
from rondel.execution.stages.task import keeps_state
from rondel.plan.plan import Plan


class LoggedRequest(NamedTuple):
    """A request with its arguments. `promises` is None if they have been kept already."""

    request: Request
    args: tuple[Any, ...]
    promises: list[Any] | None
    results: tuple[Any, ...] = ()  # weak references to those promises, if results can be lost


class RequestLog:
    """One copy's requests. `reads` of results that may be lost with their node are logged too."""

    def __init__(self, has_snapshots: bool, reads: bool = False) -> None:
        self.has_snapshots = has_snapshots  # an environment's state is its policy's
        self._reads = reads
        self.base: Any = None  # the promise of the last snapshot; None before the first
        self.answered: list[LoggedRequest] = []  # since then, oldest first
        self.unsent: deque[LoggedRequest] = deque()  # wait for arguments, or for their turn
        self.sent: dict[int, LoggedRequest] = {}  # by number, oldest first
        self._asked_at: int | None = None  # length of `answered` when a snapshot was asked for

    def heard(self, number: int) -> LoggedRequest:
        """Note the answer to a request that is in `sent`."""
        asked = self.sent.pop(number)
        self.note(asked)
        return asked

    def note(self, asked: LoggedRequest) -> None:
        """Note an answer."""
        request = asked.request
        if request is KEEP:
            self._asked_at = len(self.answered)
        logged = not request.reads or (self._reads and request.shared)
        if self.has_snapshots and logged and not request.starts:
            results = asked.results
            if self._reads and asked.promises is not None:
                results = tuple(map(ref, asked.promises))
            self.answered.append(LoggedRequest(request, asked.args, None, results))

    def results_until_snapshot(self) -> list[Any]:
        """Weak references to what can't be made again once the snapshot under way is kept."""
        return [made for asked in self.answered[: self._asked_at] for made in asked.results]

    def keep(self, state: Any) -> None:
        """Replace the snapshot and forget what came before it."""
        assert self._asked_at is not None
        self.base = state
        del self.answered[: self._asked_at]
        self._asked_at = None

    def give_up(self) -> None:
        """Log nothing any more: the state is too large for a snapshot."""
        self.has_snapshots, self.base, self.answered = False, None, []

    def queue_all(self, packed: bytes, episodes: int, redo: Redo, piece: int) -> None:
        """Line up in `unsent` all that a new incarnation must be sent."""
        open_ = [*self.sent.values(), *self.unsent]
        waited = [asked.promises for asked in open_ if asked.request is MAKE]
        first = [LoggedRequest(MAKE, (packed,), waited[0] if waited else None)]
        others = [asked for asked in open_ if not asked.request.starts]
        self.unsent = deque([*first, *self.replay(episodes, redo, piece), *others])
        self.sent = {}

    def replay(
        self, episodes: int, redo: Redo, piece: int, gone: bool = False
    ) -> list[LoggedRequest]:
        """Empty the log -> the requests that make a new incarnation what the old one was.

        Rounds of host environments can't be repeated, so they are redone only where a memory needs
        them, or if results are `gone` with a node. A mere read is redone if its result is held.
        """
        wanted = []
        if self.base is not None:
            wanted.append(LoggedRequest(TAKE_OVER, (self.base, episodes), None))
        for asked in self.answered:
            if asked.request.reads and not any(made() for made in asked.results):
                continue
            if asked.request is PRODUCE and not (gone or redo.all(piece)):
                continue
            if asked.request is BEGIN and not redo.exact:
                asked = asked._replace(args=(episodes,))
            wanted.append(asked)
        self.answered, self._asked_at = [], None
        return wanted


class Redo:
    """Which pieces repeat all their requests when they are replaced."""

    def __init__(self, plan: Plan, task: Any) -> None:
        self._plan = plan
        self.exact = task is None or keeps_state(task.env)

    def all(self, piece: int) -> bool:
        """Whether a copy of this piece repeats its rounds too."""
        return self.exact or "memory" in self._plan.pieces[piece].stages
