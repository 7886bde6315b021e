"""Who of a range of copies acts, who comes and who goes: a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import product
from typing import Any

import jax
import numpy as np
import pytest

from execution.test_equality import task
from rondel.execution.backends.inline import Inline
from rondel.execution.backends.lowering import Lowering
from rondel.execution.backends.protocol import Copy, worker_factory
from rondel.execution.loop.elastic import Orders, Slot, decide
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.rounds import Report
from rondel.execution.loop.sync_loop import Limits, run_rounds
from rondel.plan.parser import parse

HOUSED = Slot(here=True)
COMING = Slot(here=False, coming=True)
BORROWER = Slot(here=True, borrows=True, room=False)
BUSY_GUEST = BORROWER._replace(done=False)
AWAY = Slot(here=False, room=False)
ROOM = Slot(here=False, room=True)

TABLE = {
    "all are there": ([HOUSED, HOUSED], 1, Orders([0, 1], [], [], [])),
    "those with room come": ([HOUSED, ROOM, AWAY, ROOM], 1, Orders([0], [1, 3], [], [])),
    "once": ([HOUSED, COMING], 1, Orders([0], [], [], [])),
    "a borrower goes": ([HOUSED, BORROWER], 1, Orders([0], [], [], [1])),
    "but not with what it made": ([HOUSED, BUSY_GUEST], 1, Orders([0], [], [], [])),
    "borrowers act if too few are left": (
        [HOUSED, BORROWER, BORROWER],
        2,
        Orders([0, 1, 2], [], [], []),
    ),
    "borrowers alone act": ([BORROWER, BORROWER], 1, Orders([0, 1], [], [], [])),
    "until someone has come": ([BORROWER, COMING], 1, Orders([0], [], [], [])),
    "a borrower with room moves, busy or not, and acts meanwhile": (
        [BUSY_GUEST._replace(room=True)],
        1,
        Orders([0], [], [0], []),
    ),
    "if enough have room too": (
        [HOUSED, BORROWER._replace(room=True)],
        1,
        Orders([0], [], [1], []),
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_orders(case: str) -> None:
    slots, least, orders = TABLE[case]
    assert decide(slots, least) == orders


def test_someone_acts_whoever_has_room() -> None:
    """As long as the least are here, with room or without."""
    kinds = (HOUSED, COMING, BORROWER, BUSY_GUEST, BORROWER._replace(room=True), AWAY, ROOM)
    for slots in product(kinds, repeat=3):
        here = [i for i, slot in enumerate(slots) if slot.here]
        orders = decide(slots, 1)
        assert bool(orders.act) == bool(here)
        assert not set(orders.go) & {*orders.act, *orders.move}
        assert len(here) - len(orders.go) >= min(1, len(here))


class Halls(Inline):
    """Room comes and goes as a test says; who comes takes a while."""

    elastic = property(lambda self: self)

    def __init__(self, *first: int) -> None:
        super().__init__()
        self.open, self.running = set(first), set(first)
        self.without, self.arriving = set[int](), dict[int, int]()
        self.kept: dict[int, Any] = {}

    def launch(self, task: Any, lowering: Lowering) -> list[list[Copy]]:
        self._made = lambda i: worker_factory(task, lowering.plan, 0, i)
        return super().launch(task, lowering)

    def lose(self, *copies: int) -> None:
        self.open -= set(copies)
        self.without |= set(copies) & self.running

    def rooms(self) -> set[int]:
        for i in list(self.arriving):
            self.arriving[i] -= 1
            if self.arriving[i] == 0:
                del self.arriving[i]
                self.running.add(i)
        return set(self.open)

    def here(self) -> set[int]:
        return set(self.running)

    def coming(self) -> set[int]:
        return set(self.arriving)

    def borrowers(self) -> set[int]:
        return set(self.without)

    def is_done(self, copy: int) -> bool:
        return True

    def come(self, copy: int) -> None:
        assert copy not in {*self.running, *self.arriving}
        make, args = self._made(copy)
        worker = self._copies[copy].worker = make(*args)  # another one, that knows nothing
        if copy in self.kept:
            worker.take_over(dict(self.kept[copy]), 7)
        else:
            worker.begin()
        self.arriving[copy] = 3

    def move(self, copies: Sequence[int]) -> None:
        self.without -= set(copies)

    def go(self, copy: int) -> None:
        self.kept[copy] = self._copies[copy].worker.snapshot()
        self.running.remove(copy)
        self.without.remove(copy)

    def state_of(self, copy: int) -> Any:
        return self.kept.get(copy)

    def hold(self, copy: int, state: Any) -> None:
        self.kept[copy] = state


PLAN = parse("actor*1..4 | learner", lag=1, free=True)
TOY = task("toy")._replace(block=4)


def act(ring: Ring, reports: Iterator[Report], rounds: int = 8) -> set[float]:
    """So many rounds, each whole -> how many copies acted in the last of them."""
    numbers = []
    for _ in range(rounds):
        report = next(reports)
        assert len(ring.free._outstanding()) <= 2 * 4
        numbers.append(report.metrics["policy/copies"])
    return set(numbers[4:])


def test_whoever_acts_a_round_is_a_round() -> None:
    halls = Halls(0)
    with closing(Ring(TOY, PLAN, halls)) as ring:
        reports = run_rounds(ring, Limits(10**9))
        assert act(ring, reports) == {1}
        halls.open = {0, 1, 2, 3}
        assert act(ring, reports) == {4}
        halls.lose(2, 3)
        assert act(ring, reports) == {2}
        assert halls.here() == {0, 1}
        halls.lose(0, 1)
        assert act(ring, reports) == {2}  # who has no room acts on, if there is nobody else
        halls.open = {2}
        assert act(ring, reports) == {1}
        assert halls.here() == {2}
        begun = sum(ring.free.rounds_begun)
        flights = 4 * ring.round + len(ring.free._outstanding())
        assert begun == flights  # none is lost, none is learned from twice


def test_a_copy_comes_back_as_what_it_was() -> None:
    halls = Halls(0, 1)
    with closing(Ring(TOY, PLAN, halls)) as ring:
        reports = run_rounds(ring, Limits(10**9))
        act(ring, reports)
        halls.lose(1)
        act(ring, reports)
        went = jax.tree.map(np.array, halls.kept[1])
        tree = ring.tree()
        halls.come(1)
        came = halls._copies[1].worker.snapshot()
        jax.tree.map(np.testing.assert_array_equal, came, went)
    saved = jax.tree.map(np.array, tree)
    with closing(Ring(TOY, parse("all"))) as whole:  # those who were away are in a checkpoint too
        assert jax.tree.map(np.shape, saved) == jax.tree.map(np.shape, whole.tree())
    with closing(Ring(TOY, PLAN, Halls(2))) as ring:
        ring.restore(saved, ring.stored(), 16, 999)
        again = ring.tree()
        for name in ("lanes", "step", "env"):
            jax.tree.map(np.testing.assert_array_equal, again[name], saved[name])
        assert next(run_rounds(ring, Limits(10**9))).round == 16
