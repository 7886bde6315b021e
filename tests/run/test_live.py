"""A run's load while it runs, from what copies say in passing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rondel.execution.backends.lowering import Kind, Lowering
from rondel.execution.telemetry.timing import (
    DATA,
    SIMULATOR,
    STARTING,
    XLA,
    Meter,
    TimeBucket,
    TimingSummary,
)
from rondel.plan.parser import parse
from rondel.run.profiling import live
from rondel.run.profiling.live import LiveUtilisation
from run.made_up import FACTS


class Ring:
    """Two actors and a learner, who say what the test tells them to."""

    plan = parse("actor*2 | learner")
    lowering = Lowering(Kind.ROUNDS, plan)
    meter = Meter()  # the driver's: it has done nothing

    def __init__(self) -> None:
        self.said: list[list[TimingSummary]] = [[], []]
        self.round = 0

    def latest_timings(self) -> list[list[TimingSummary]]:
        self.round += 2
        return self.said


def glance(who: str, *spent: TimeBucket) -> TimingSummary:
    return TimingSummary(who, sum(one.seconds for one in spent), spent, 2**30)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> tuple[Ring, LiveUtilisation]:
    monkeypatch.setattr(live, "_FIRST", 0.0)
    monkeypatch.setattr(live, "_SECONDS", 0.0)
    ring = Ring()
    monkeypatch.setattr(live, "facts_of", lambda setup: FACTS)
    run: Any = SimpleNamespace(ring=ring, setup=None)
    return ring, LiveUtilisation(run)


def test_a_window_is_what_was_done_since_the_one_before(seen: tuple[Ring, LiveUtilisation]) -> None:
    ring, window = seen
    assert window.look() is None  # nobody has said anything
    learner = glance("l", TimeBucket("learner", STARTING, 5.0, 1, 0))
    ring.said = [[glance("a", TimeBucket("env", SIMULATOR, 1.0, 10, 0))], [learner]]
    assert window.look() is None  # the learner has only started
    ring.said[1] = [glance("l", *learner.spent, TimeBucket("learner", XLA, 7.0, 1, 0))]
    assert window.look() is None  # this is where the first window begins
    busy = (TimeBucket("learner", XLA, 9.0, 2, 0), TimeBucket("memory", DATA, 8.0, 1, 0))
    ring.said = [
        [
            glance(
                "a", TimeBucket("env", SIMULATOR, 9.0, 80, 0), TimeBucket("policy", XLA, 2.0, 80, 0)
            )
        ],
        [glance("l", *learner.spent, *busy)],
    ]
    first = window.look()
    assert first is not None
    assert [(p.copies, p.busy, p.memory) for p in first.pieces] == [
        (1, 1.0, 2**30),
        (1, pytest.approx(0.2), 2**30),
    ]
    assert (first.bound, first.piece) == ("env", "actor")
    assert first.text == "env (80% of each round; actor idle 0%)."
    assert first.part == pytest.approx(0.8)
    assert dict(first.pieces[1].parts) == pytest.approx({"learner": 0.2, "waits for data": 0.8})
    # since then: a second actor came, and the first did nothing but act, 6 s; the learner learned
    ring.said = [
        [
            glance(
                "a", TimeBucket("env", SIMULATOR, 9.0, 80, 0), TimeBucket("policy", XLA, 8.0, 99, 0)
            ),
            glance("b", TimeBucket("env", SIMULATOR, 2.0, 9, 0)),
        ],
        [glance("l", *learner.spent, TimeBucket("learner", XLA, 11.0, 3, 0), busy[1])],
    ]
    second = window.look()
    assert second is not None
    # of 6 + 2 seconds of the actors, 2 in env
    assert dict(second.pieces[0].parts) == pytest.approx({"policy": 0.75, "env": 0.25})
    assert second.pieces[0].copies == 2
    assert second.pieces[1].parts == (("learner", 1.0),)


def test_a_window_lasts_until_every_piece_has_done_something(
    seen: tuple[Ring, LiveUtilisation],
) -> None:
    ring, window = seen
    actor, learner = TimeBucket("env", SIMULATOR, 1.0, 1, 0), TimeBucket("learner", XLA, 1.0, 1, 0)
    ring.said = [[glance("a", actor)], [glance("l", learner)]]
    window.look()
    later = [one._replace(seconds=2.0, times=2) for one in (actor, learner)]
    ring.said = [[glance("a", later[0])], [glance("l", later[1])]]
    first = window.look()
    assert first is not None
    ring.said = [[glance("a", actor._replace(seconds=3.0, times=3))], [glance("l", later[1])]]
    assert window.look() is first
    more = learner._replace(seconds=5.0, times=3)
    ring.said = [[glance("a", actor._replace(seconds=4.0, times=4))], [glance("l", more)]]
    assert window.look() is not first


def test_a_window_has_enough_rounds_to_tell_what_bounds_them(
    seen: tuple[Ring, LiveUtilisation],
) -> None:
    ring, window = seen
    for seconds in (1.0, 2.0, 3.0, 4.0):
        ring.said = [
            [glance("a", TimeBucket("env", SIMULATOR, seconds, int(seconds), 0))],
            [glance("l", TimeBucket("learner", XLA, seconds / 4, int(seconds), 0))],
        ]
        ring.round -= 1  # one round each time
        load = window.look()
        assert (load is not None) == (seconds == 3.0 or seconds == 4.0)
    assert load is not None
    assert load.text.startswith("env (")
