"""The copies of a range, `actor*4..16`: who acts now, who comes, and who goes.

Every copy has a place in the plan, with lanes of its own, whether it runs or not. Which of them
act is decided by a pure function of who is there and who has room. A free run takes a round from
whoever makes it, so how many lanes and rows it has stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import jax
import numpy as np

from rondel.execution import experience
from rondel.execution.backend import Backend, Copy, Promise
from rondel.execution.task import Task, keeps_state, without_keys
from rondel.types import Tree


class Slot(NamedTuple):
    """What is known of a copy's place."""

    here: bool  # it runs
    guest: bool = False  # without room of its own: it was lost, and made again where others are
    room: bool = True  # there is some for it
    idle: bool = True  # nothing that it made is still needed of it


class Orders(NamedTuple):
    """Which copies do what, by number."""

    act: list[int]
    come: list[int]
    go: list[int]


def decide(slots: Sequence[Slot], least: int) -> Orders:
    """Those with room come and act; guests go, once fewer than the least are left without them."""
    housed = [i for i, slot in enumerate(slots) if slot.here and not slot.guest]
    guests = [i for i, slot in enumerate(slots) if slot.here and slot.guest]
    enough = len(housed) >= least
    return Orders(
        act=sorted([*housed, *(i for i in guests if not enough and not slots[i].room)]),
        come=[i for i, slot in enumerate(slots) if not slot.here and slot.room],
        go=[i for i in guests if slots[i].idle and (enough or slots[i].room)],
    )


class Roomy(Backend, Protocol):
    """A backend that carries a range of copies."""

    def ready(self, promises: Sequence[Promise]) -> list[int]:
        """Which of these are there by now; it doesn't wait."""

    def rooms(self) -> Collection[int]:
        """The copies that there is room for now, whether they run or not."""

    def guests(self) -> Collection[int]:
        """Those that run where others have their room."""

    def here(self) -> Collection[int]:
        """Those that run."""

    def come(self, copy: int) -> None:
        """Start one, and do not wait for it."""

    def go(self, copy: int) -> None:
        """End one that has nothing to do."""


class Crew:
    """A range of copies, and what those were that are away."""

    def __init__(self, task: Task, copies: list[Copy], least: int, backend: Roomy) -> None:
        self.task, self.copies, self.least, self.backend = task, copies, least, backend
        self.names = ("lanes", "step", "env") if keeps_state(task.env) else ("lanes",)
        away = set(range(len(copies))) - set(self.backend.here())
        self.away: dict[int, Tree] = dict.fromkeys(away)  # None: it has never been here
        self.coming: dict[int, Promise] = {}
        self.going: dict[int, Promise] = {}

    def here(self) -> list[Copy]:
        """The copies that can be asked something."""
        return [copy for i, copy in enumerate(self.copies) if i not in self.away]

    def muster(self, is_idle: Callable[[int], bool], round: int) -> list[int]:
        """Let come and go who should -> the copies that may act."""
        self._take_note()
        guests, rooms = self.backend.guests(), self.backend.rooms()
        moving = self.coming.keys() | self.going.keys()
        orders = decide(
            [
                Slot(i not in self.away, i in guests, i in rooms, is_idle(i) and i not in moving)
                for i in range(len(self.copies))
            ],
            self.least,
        )
        for i in orders.come:
            self._call(i, round)
        for i in orders.go:
            self.going[i] = self.copies[i].call("snapshot", *self.names)
        return [i for i in orders.act if i not in self.coming and i not in self.going]

    def waits(self) -> list[Promise]:
        """What would change who acts."""
        return [*self.coming.values(), *self.going.values()]

    def _take_note(self) -> None:
        """Who has come is here; who has said what it is may go."""
        for moving in (self.coming, self.going):
            if not moving:
                continue
            numbers = list(moving)
            over = self.backend.ready([moving[i] for i in numbers])
            for i in (numbers[j] for j in over):
                promise = moving.pop(i)
                if moving is self.going:
                    self.away[i] = self.backend.get([promise])[0]
                    self.backend.go(i)

    def _call(self, i: int, round: int) -> None:
        """Start a copy, as what it was when it went."""
        was, copy = self.away.pop(i), self.copies[i]
        self.backend.come(i)
        self.coming[i] = copy.call("begin")
        if was is not None:
            self.coming[i] = copy.call("restore", was)
        if was is not None and not keeps_state(self.task.env):
            self.coming[i] = copy.call("begin_again", round)

    def parts(self, i: int) -> Tree:
        """What a copy that is away was, or will be when it comes for the first time."""
        if self.away[i] is not None:
            return self.away[i]
        task, each = self.task, self.task.lanes // len(self.copies)
        lane = np.arange(i * each, (i + 1) * each, dtype=np.int32)
        parts = {"lanes": jax.jit(partial(experience.first_lanes, task))(lane)}
        if keeps_state(task.env):
            env, step = experience.first_step(task, np.uint32(task.seed), lane, 0)
            parts |= {"step": step, "env": env}
        return {name: without_keys(part) for name, part in parts.items()}

    def restore(self, i: int, parts: Mapping[str, Tree]) -> None:
        """A copy that is away is to be this when it comes."""
        self.away[i] = {name: parts[name] for name in self.names}
