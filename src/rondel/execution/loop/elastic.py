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

from rondel.execution.backends.protocol import Backend, Copy
from rondel.execution.stages import initial
from rondel.execution.stages.task import Task, keeps_state, without_keys
from rondel.types import Tree


class Slot(NamedTuple):
    """What is known of a copy's place."""

    here: bool  # it runs, and has come
    coming: bool = False  # it has been started, and is not ready yet
    guest: bool = False  # without room of its own: it was lost, and made again where others are
    room: bool = True  # there is some for it
    done: bool = True  # nothing that it made is still needed of it


class Orders(NamedTuple):
    """Which copies do what, by number."""

    act: list[int]
    come: list[int]
    move: list[int]
    go: list[int]


def decide(slots: Sequence[Slot], least: int) -> Orders:
    """Those with room come and act, guests move to theirs; others go once enough have room."""
    housed = [i for i, slot in enumerate(slots) if slot.here and not slot.guest]
    guests = [i for i, slot in enumerate(slots) if slot.here and slot.guest]
    enough = len(housed) >= least
    absent = [i for i, slot in enumerate(slots) if not (slot.here or slot.coming)]
    return Orders(
        act=housed if enough else sorted([*housed, *guests]),
        come=[i for i in absent if slots[i].room],
        move=[i for i in guests if slots[i].room],
        go=[i for i in guests if enough and slots[i].done and not slots[i].room],
    )


class ElasticBackend(Backend, Protocol):
    """A backend that carries a range of copies."""

    def rooms(self) -> Collection[int]:
        """The copies that there is room for now, whether they run or not."""

    def here(self) -> Collection[int]:
        """Those that run, and have come."""

    def coming(self) -> Collection[int]:
        """Those that were started and have not come yet."""

    def guests(self) -> Collection[int]:
        """Those that run where others have their room."""

    def is_done(self, copy: int) -> bool:
        """Is nothing that a copy has made asked of it again, whatever is lost?"""

    def come(self, copy: int) -> None:
        """Start one, as what it was when it went, and do not wait for it."""

    def move(self, copies: Sequence[int]) -> None:
        """Bring guests to rooms of their own."""

    def go(self, copy: int) -> None:
        """End one that is done, and keep what it was."""

    def state_of(self, copy: int) -> Tree | None:
        """What a copy was when it went; None if it has never been here."""

    def hold(self, copy: int, state: Tree) -> None:
        """A copy that is not here is to be this when it comes."""


class ElasticWorkers:
    """A range of copies."""

    def __init__(self, task: Task, copies: list[Copy], least: int, backend: ElasticBackend) -> None:
        self.task, self.copies, self.least, self.backend = task, copies, least, backend
        self.names = ("lanes", "step", "env") if keeps_state(task.env) else ("lanes",)
        self._first_lanes = jax.jit(partial(initial.first_lanes, task))

    def here(self) -> dict[int, Copy]:
        """The copies that can be asked something, by number."""
        return {i: self.copies[i] for i in sorted(self.backend.here())}

    def muster(self, is_idle: Callable[[int], bool]) -> list[int]:
        """Let come and go who should -> the copies that may act."""
        backend = self.backend
        rooms, coming, here = backend.rooms(), backend.coming(), backend.here()
        guests = backend.guests()
        orders = decide(
            [
                Slot(
                    i in here,
                    i in coming,
                    i in guests,
                    i in rooms,
                    i in guests and is_idle(i) and backend.is_done(i),
                )
                for i in range(len(self.copies))
            ],
            self.least,
        )
        for i in orders.come:
            backend.come(i)
        if orders.move:
            backend.move(orders.move)
        for i in orders.go:
            backend.go(i)
        return orders.act

    def parts(self, i: int) -> Tree:
        """What a copy that is not here was, or will be when it comes for the first time."""
        state = self.backend.state_of(i)
        if state is not None:
            return {name: state[name] for name in self.names}
        task, each = self.task, self.task.lanes // len(self.copies)
        lane = np.arange(i * each, (i + 1) * each, dtype=np.int32)
        parts = {"lanes": self._first_lanes(lane)}
        if keeps_state(task.env):
            env, step = initial.episode_starter(task)(np.uint32(task.seed), lane, 0)
            parts |= {"step": step, "env": env}
        return {name: without_keys(part) for name, part in parts.items()}

    def restore(self, i: int, parts: Mapping[str, Tree]) -> None:
        """A copy that is not here is to be this when it comes."""
        self.backend.hold(i, {name: parts[name] for name in self.names})
