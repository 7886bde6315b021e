"""What a copy was asked, in order, so that another can take its place.

A copy is a function of its messages: what it was when its state was last kept, and all that it was
asked since, make it again. What it already answered it answers once more, for nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple
from weakref import ref

from rondel.execution.backends.protocol import Lost
from rondel.execution.backends.recovery.policy import AT_START, Death, Restart, Stop, decide
from rondel.execution.requests import BEGIN, KEEP, MAKE, PRODUCE, TAKE_OVER, Request
from rondel.execution.stages.task import keeps_state
from rondel.plan.plan import Plan

_PERHAPS = " If the machine ran out of memory (dmesg tells), fewer cuts or copies need less."


class LoggedRequest(NamedTuple):
    """A request; `promises` is None if its answer has been given before."""

    request: Request
    args: tuple[Any, ...]
    promises: list[Any] | None
    made: tuple[Any, ...] = ()  # weak references to those promises, if they may be lost


class RequestLog:
    """What one copy was asked since its state was last kept."""

    def __init__(self, is_kept: bool, reads: bool = False) -> None:
        self.is_kept = is_kept  # an environment's state is kept by the policy that drives it
        self._reads = reads  # what was read out of it may be lost with its node
        self.base: Any = None  # the promise of the state that was last kept, if any
        self.answered: list[LoggedRequest] = []  # since then
        self.unsent: deque[LoggedRequest] = deque()
        self.sent: dict[int, LoggedRequest] = {}  # by number, in order
        self.deaths: list[Death] = []
        self.began = False  # did it ever answer anything but that it is there?
        self.progress = False  # something new since it was last started?
        self.protected = True  # is its state small enough to be kept?
        self._mark: int | None = None  # length of `answered` when it was asked for its state

    def heard(self, number: int) -> LoggedRequest:
        """A call has been answered."""
        asked = self.sent.pop(number)
        self.note(asked)
        return asked

    def note(self, asked: LoggedRequest) -> None:
        """The same, of a call that is counted elsewhere."""
        if asked.request is KEEP:
            self._mark = len(self.answered)
        if asked.promises is not None and not is_start(asked):
            self.began = self.progress = True
        logged = not asked.request.reads or (self._reads and asked.request.shared)
        if self.is_kept and self.protected and logged and not is_start(asked):
            made = asked.made
            if self._reads and asked.promises is not None:
                made = tuple(map(ref, asked.promises))
            self.answered.append(LoggedRequest(asked.request, asked.args, None, made))

    def made_until_kept(self) -> list[Any]:
        """Weakly, what can't be made again, once the state that was asked for is kept."""
        return [made for asked in self.answered[: self._mark] for made in asked.made]

    def kept(self, state: Any) -> None:
        """Its state is kept now: what came before can be forgotten."""
        assert self._mark is not None
        self.base = state
        del self.answered[: self._mark]
        self._mark = None

    def give_up(self) -> None:
        """Its state can't be kept, so neither is what it was asked."""
        self.protected, self.base, self.answered = False, None, []

    def begin_again(self, recipe: bytes, again: int, redo: Redo, piece: int) -> None:
        """Line up all that a new copy must be asked: what it is, then what the old one was asked.

        Episodes that begin anew are others for each number `again`.
        """
        open_ = [*self.sent.values(), *self.unsent]
        waited = [asked.promises for asked in open_ if asked.request is MAKE]
        first = [LoggedRequest(MAKE, (recipe,), waited[0] if waited else None)]
        if self.base is not None:
            first.append(LoggedRequest(TAKE_OVER, (self.base, again), None))
        others = [asked for asked in open_ if not is_start(asked)]
        self.unsent = deque([*first, *self.replay(again, redo, piece), *others])
        self.answered, self.sent, self._mark, self.progress = [], {}, None, False

    def replay(self, again: int, redo: Redo, piece: int, gone: bool = False) -> list[LoggedRequest]:
        """What a new copy must be asked again of what was answered.

        Rounds of host environments can't be had again, and are only made where memory needs them;
        or if they are `gone` with a node. What was only read, and is still held, may go later.
        """
        wanted = []
        for asked in self.answered:
            if asked.request.reads and not any(made() for made in asked.made):
                continue
            if asked.request is PRODUCE and not (gone or redo.all(piece)):
                continue
            if asked.request is BEGIN and not redo.exact:
                asked = asked._replace(args=(again,))
            wanted.append(asked)
        return wanted


def pause_or_raise(
    name: str,
    dying: RequestLog,
    unit: Mapping[str, RequestLog],
    how: str,
    killed: bool,
    action: str,
    restarts: int,
) -> float:
    """How many seconds to wait before a copy, and its unit, is started again; or `Lost`.

    `unit` has the journals of all that are started again with it, by name.
    """
    progress = any(journal.progress for journal in unit.values())
    dying.deaths.append(Death(how, killed, action, progress))
    began = any(journal.began for journal in unit.values())
    may = restarts if began else min(restarts, AT_START)
    large = [member for member, journal in unit.items() if not journal.protected]
    match decide(dying.deaths, 0 if large else may):
        case Restart(pause):
            return pause
        case Stop(reason) if large and restarts:
            raise Lost(
                f"{name} {reason} What {large[0]} held was too large to be kept twice: resume from "
                f"a checkpoint, if there is one.{_PERHAPS if 'SIGKILL' in how else ''}"
            )
        case Stop(reason):
            raise Lost(f"{name} {reason}")


def stop_if_hopeless(
    name: str, deaths: list[Death], at: int, action: str, ended: str, restarts: int
) -> None:
    """Raise `Lost` if the death with this number, of which more is known now, was one too many.

    `ended` is how it ended by itself, if it did.
    """
    how = ended or deaths[at].how
    deaths[at] = deaths[at]._replace(how=how, killed=False, action=action)
    match decide(deaths[: at + 1], restarts):
        case Stop(reason):
            raise Lost(f"{name} {reason}")


def is_start(asked: LoggedRequest) -> bool:
    """Does it only make the copy what it is to be?"""
    return asked.request.starts


class Redo:
    """Which pieces do again what they have handed over, when they are made again."""

    def __init__(self, plan: Plan, task: Any) -> None:
        self._plan = plan
        self.exact = task is None or keeps_state(task.env)

    def all(self, piece: int) -> bool:
        """Rounds of host environments can't be had again: only what memory here needs is made."""
        return self.exact or "memory" in self._plan.pieces[piece].stages
