"""What a copy was asked, in order, so that another can take its place.

A copy is a function of its messages: what it was when its state was last kept, and all that it was
asked since, make it again. What it already answered it answers once more, for nobody.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple
from weakref import ref

from rondel.execution.supervise import Death
from rondel.execution.task import keeps_state
from rondel.plan import Plan

_READS = ("snapshot", "acting", "learning", "keep")  # requests that change nothing
TAKE_OVER = "take_over"
_STARTS = ("make", "listen", "connect", TAKE_OVER)  # and a recipe


class Asked(NamedTuple):
    """A request; `promises` is None if its answer has been given before."""

    request: Any
    args: tuple[Any, ...]
    promises: list[Any] | None
    made: tuple[Any, ...] = ()  # weak references to those promises, once they are kept


class Journal:
    """What one copy was asked since its state was last kept."""

    def __init__(self, is_kept: bool) -> None:
        self.is_kept = is_kept  # an environment's state is kept by the policy that drives it
        self.base: Any = None  # the promise of the state that was last kept, if any
        self.answered: list[Asked] = []  # since then
        self.unsent: deque[Asked] = deque()
        self.sent: dict[int, Asked] = {}  # by number, in order
        self.deaths: list[Death] = []
        self.began = False  # did it ever answer anything but that it is there?
        self.progress = False  # something new since it was last started?
        self.protected = True  # is its state small enough to be kept?
        self._mark: int | None = None  # length of `answered` when it was asked for its state

    def heard(self, number: int) -> Asked:
        """A call has been answered."""
        asked = self.sent.pop(number)
        self.note(asked)
        return asked

    def note(self, asked: Asked) -> None:
        """The same, of a call that is counted elsewhere."""
        if asked.request == "keep":
            self._mark = len(self.answered)
        if asked.promises is not None and not is_start(asked):
            self.began = self.progress = True
        if self.is_kept and self.protected and asked.request not in _READS and not is_start(asked):
            made = asked.made if asked.promises is None else tuple(map(ref, asked.promises))
            self.answered.append(asked._replace(promises=None, made=made))

    def kept(self, state: Any) -> None:
        """Its state is kept now: what came before can be forgotten."""
        self.base = state
        del self.answered[: self._mark]
        self._mark = None

    def give_up(self) -> None:
        """Its state can't be kept, so neither is what it was asked."""
        self.protected, self.base, self.answered = False, None, []

    def begin_again(self, first: list[Asked], redo: bool) -> None:
        """Line up all that a new copy must be asked: `first`, then what the old one was.

        Without `redo` rounds that it has handed over are not made again.
        """
        again = [asked for asked in self.answered if redo or asked.request != "produce"]
        others = [asked for asked in (*self.sent.values(), *self.unsent) if not is_start(asked)]
        self.unsent = deque([*first, *again, *others])
        self.answered, self.sent, self._mark, self.progress = [], {}, None, False


def is_start(asked: Asked) -> bool:
    """Does it only make the copy what it is to be?"""
    return isinstance(asked.request, bytes) or asked.request in _STARTS


class Redo:
    """Which pieces do again what they have handed over, when they are made again."""

    def __init__(self, plan: Plan, task: Any) -> None:
        self._plan = plan
        self._exact = task is None or keeps_state(task.env)

    def all(self, piece: int) -> bool:
        """Rounds of host environments can't be had again: only what memory here needs is made."""
        return self._exact or "memory" in self._plan.pieces[piece].stages
