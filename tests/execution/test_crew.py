"""Who of a range of copies acts, who comes and who goes: a table."""

from __future__ import annotations

import pytest

from rondel.execution.crew import Orders, Slot, decide

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
