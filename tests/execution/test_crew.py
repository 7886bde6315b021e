"""Who of a range of copies acts, who comes and who goes: a table."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import jax
import numpy as np
import pytest

from execution.test_equality import task
from rondel.execution.backend import Copy, recipe
from rondel.execution.backends.inline import Inline
from rondel.execution.crew import Orders, Slot, decide
from rondel.execution.loop import Limits, rounds
from rondel.execution.ring import Ring
from rondel.plan import Plan, parse

HOUSED = Slot(here=True)
BUSY = HOUSED._replace(idle=False)
GUEST = Slot(here=True, guest=True, room=False)
BUSY_GUEST = GUEST._replace(idle=False)
AWAY = Slot(here=False, room=False)
ROOM = Slot(here=False, room=True)

TABLE = {
    "all are there": ([HOUSED, BUSY], 1, Orders([0, 1], [], [])),
    "those with room come": ([HOUSED, ROOM, AWAY, ROOM], 1, Orders([0], [1, 3], [])),
    "a guest goes": ([HOUSED, GUEST], 1, Orders([0], [], [1])),
    "but not with what it made": ([HOUSED, BUSY_GUEST], 1, Orders([0], [], [])),
    "guests act if too few are left": ([HOUSED, GUEST, GUEST], 2, Orders([0, 1, 2], [], [])),
    "guests alone act": ([GUEST, GUEST], 1, Orders([0, 1], [], [])),
    "a guest with room goes, to come again": (
        [GUEST._replace(room=True), GUEST],
        1,
        Orders([1], [], [0]),
    ),
    "not while it is busy": ([BUSY_GUEST._replace(room=True), GUEST], 1, Orders([1], [], [])),
}


@pytest.mark.parametrize("case", TABLE)
def test_orders(case: str) -> None:
    slots, least, orders = TABLE[case]
    assert decide(slots, least) == orders


class Halls(Inline):
    """Room comes and goes as a test says."""

    def __init__(self, *first: int) -> None:
        super().__init__()
        self.open, self.running, self.without = set(first), set(first), set[int]()

    def launch(self, task: Any, plan: Plan) -> list[list[Copy]]:
        self._made = lambda i: recipe(task, plan, 0, i)
        return super().launch(task, plan)

    def lose(self, *copies: int) -> None:
        self.open -= set(copies)
        self.without |= set(copies) & self.running

    def rooms(self) -> set[int]:
        return self.open

    def here(self) -> set[int]:
        return set(self.running)

    def guests(self) -> set[int]:
        return set(self.without)

    def ready(self, promises: Sequence[Any]) -> list[int]:
        return list(range(len(promises)))

    def come(self, copy: int) -> None:
        make, args = self._made(copy)
        self._copies[copy].fragment = make(*args)  # another one, that knows nothing
        self.running.add(copy)

    def go(self, copy: int) -> None:
        self.running.remove(copy)
        self.without.remove(copy)


def test_whoever_acts_a_round_is_a_round() -> None:
    """And a copy that went comes back as what it was."""
    toy = task("toy")._replace(block=4)
    halls = Halls(0)
    plan = parse("actor*1..4 | learner", lag=1, free=True)
    each = toy.lanes * toy.algorithm.rollout
    with closing(Ring(toy, plan, halls)) as ring:
        reports = rounds(ring, Limits(10**9))

        def act(n: int) -> set[float]:
            some = [next(reports) for _ in range(n)]
            assert [r.round for r in some] == list(range(some[0].round, some[0].round + n))
            assert all(len(ring.free._outstanding()) <= 2 * 4 for _ in some)
            return {r.metrics["policy/copies"] for r in some[3:]}

        assert act(8) == {1}
        halls.open = {0, 1, 2, 3}
        assert act(8) == {4}
        halls.lose(2, 3)
        assert act(8) == {2}
        assert set(ring.crew.away) == {2, 3} if ring.crew else False
        went, counts = ring.tree(), (ring.round, ring.steps)
        halls.lose(0, 1)
        assert act(8) == {2}  # who has no room acts on, if there is nobody else
        halls.open = {2}
        assert act(8) == {1}
        assert 0 < ring.steps <= ring.round * each
    with closing(Ring(toy, parse("all"))) as whole:
        assert jax.tree.map(np.shape, went) == jax.tree.map(np.shape, whole.tree())
    again = Halls(0)
    with closing(Ring(toy, plan, again)) as ring:
        ring.restore(went, ring.stored(), *counts)
        jax.tree.map(np.testing.assert_array_equal, ring.tree()["lanes"], went["lanes"])
        again.open = {0, 1, 2, 3}
        reports = rounds(ring, Limits(10**9))
        assert {next(reports).metrics["policy/copies"] for _ in range(5)} == {4}
