"""The copies of a range, `actor*4..16`: which of them act, start, move and end.

Every copy has its own lanes, whether it runs or not. A pure function decides which of them act. A
free run takes a round from any copy that makes it, so its lanes and rows stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from rondel.execution.backends.protocol import Copy, Range
from rondel.execution.stages import initial, shapes
from rondel.execution.stages.task import Task, keeps_state, without_keys
from rondel.types import Tree


class Slot(NamedTuple):
    """The state of one copy of a range."""

    here: bool  # it runs
    coming: bool = False  # it was started and is not ready yet
    borrows: bool = False  # lost its node, and restarted on another copy's for the time being
    room: bool = True  # the cluster has resources for it
    done: bool = True  # nothing that it made will be requested again


class Orders(NamedTuple):
    """The numbers of the copies that are to act, start, move and end."""

    act: list[int]
    come: list[int]
    move: list[int]
    go: list[int]


def decide(slots: Sequence[Slot], least: int) -> Orders:
    """Copies with room start and act, borrowers move there; others end once enough have room."""
    housed = [i for i, slot in enumerate(slots) if slot.here and not slot.borrows]
    borrowers = [i for i, slot in enumerate(slots) if slot.here and slot.borrows]
    enough = len(housed) >= least
    absent = [i for i, slot in enumerate(slots) if not (slot.here or slot.coming)]
    return Orders(
        act=housed if enough else sorted([*housed, *borrowers]),
        come=[i for i in absent if slots[i].room],
        move=[i for i in borrowers if slots[i].room],
        go=[i for i in borrowers if enough and slots[i].done and not slots[i].room],
    )


class ElasticWorkers:
    """A range of copies, and the `elastic` part of the backend that carries them."""

    def __init__(self, task: Task, copies: list[Copy], least: int, backend: Range) -> None:
        self.task, self.copies, self.least, self.backend = task, copies, least, backend
        self.names = ("lanes", "step", "env") if keeps_state(task.env) else ("lanes",)
        self._first_lanes = jax.jit(partial(shapes.first_lanes, task))

    def here(self) -> dict[int, Copy]:
        """The copies that run, by number."""
        return {i: self.copies[i] for i in sorted(self.backend.here())}

    def rescale(self, is_idle: Callable[[int], bool]) -> list[int]:
        """Start, move and end copies as nodes come and go -> the copies that may act."""
        backend = self.backend
        rooms, coming, here = backend.rooms(), backend.coming(), backend.here()
        borrowers = backend.borrowers()
        orders = decide(
            [
                Slot(
                    i in here,
                    i in coming,
                    i in borrowers,
                    i in rooms,
                    i in borrowers and is_idle(i) and backend.is_done(i),
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

    def state_of(self, i: int) -> Tree:
        """The state of a copy that does not run: its last one, or its first."""
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
        """Set the state with which a copy that does not run will start."""
        self.backend.hold(i, {name: parts[name] for name in self.names})
