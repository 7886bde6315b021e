"""Where a copy's time goes: all of it is somebody's, and none is counted twice."""

from __future__ import annotations

import pytest

import rondel
from rondel.execution.telemetry.timing import (
    PYTHON,
    SIMULATOR,
    STARTING,
    TRANSPORT,
    XLA,
    Meter,
    TimeBucket,
    since,
)

SMALL = {"lanes": 8, "block": 4, "rollout": 8, "epochs": 1, "minibatches": 2, "hidden": (8,)}


def test_what_is_marked_adds_up_to_the_time_that_has_passed():
    now = iter([10.0, 11.0, 13.0, 16.0, 20.0])
    meter = Meter(clock=lambda: next(now, 20.0))  # made at 10
    meter.mark("env", PYTHON)  # 11
    meter.mark("policy", XLA, 7)  # 13
    meter.mark("policy", XLA, 5)  # 16
    meter.mark("env", PYTHON)  # 20
    told = meter.report()
    assert told.spent == [
        TimeBucket("env", PYTHON, 1 + 4, 2, 0),
        TimeBucket("policy", XLA, 2 + 3, 2, 12),
    ]
    assert told.seconds == sum(spent.seconds for spent in told.spent) == 10.0
    assert [event.ended - event.began for event in told.events] == [1.0, 2.0, 3.0, 4.0]


def test_the_first_run_of_a_program_is_not_like_others():
    now = iter([0.0, 5.0, 6.0, 9.0])
    meter = Meter(clock=lambda: next(now, 9.0))
    for program in ("act", "act", "finish"):
        meter.ran("policy", program)
    assert meter.report().spent == [
        TimeBucket("policy", STARTING, 5.0 + 3.0, 2, 0),
        TimeBucket("policy", XLA, 1.0, 1, 0),
    ]


def test_the_first_run_of_each_copy_in_a_thread_is_its_own():
    now = iter([0.0, 5.0, 9.0, 10.0])
    meter = Meter(clock=lambda: next(now, 10.0))
    for meter.copy in ("actor 1", "actor 2", "actor 1"):  # each has a program to compile
        meter.ran("policy", "act")
    assert meter.report().spent == [
        TimeBucket("policy", STARTING, 5.0 + 4.0, 2, 0),
        TimeBucket("policy", XLA, 1.0, 1, 0),
    ]


def test_what_was_spent_of_late_is_without_what_was_spent_before():
    before = [TimeBucket("env", PYTHON, 2.0, 3, 7), TimeBucket("policy", XLA, 1.0, 1, 0)]
    now = [TimeBucket("env", PYTHON, 5.0, 4, 9), TimeBucket("policy", XLA, 1.0, 1, 0)]
    assert since(now, before) == [TimeBucket("env", PYTHON, 3.0, 1, 2)]
    assert since(now, []) == now


def test_in_passing_a_meter_says_something_at_most_once_a_second():
    now = iter([0.0, 0.5, 1.4, 1.6])
    meter = Meter(clock=lambda: next(now, 1.6))  # made at 0
    due = [meter.is_due()]
    for _ in range(3):  # at 0.5, 1.4, 1.6
        meter.mark("env", PYTHON)
        due += [meter.is_due(), meter.is_due()]
    assert due == [True, False, False, True, False, False, False]
    assert meter.summary().spent == (TimeBucket("env", PYTHON, 1.6, 3, 0),)
    assert meter.summary().who == meter.report().who


def test_events_of_another_clock_are_put_back():
    meter = Meter(clock=lambda: 1.0)
    meter.mark("env", PYTHON)
    told = meter.report()
    assert told.earlier(100.0).events[0].began == told.events[0].began - 100.0


@pytest.mark.parametrize("on", ["inline", "threads", "processes"])
def test_every_copy_says_what_it_did(on):
    plan = "env*2 | policy | memory+gradient+update"
    with rondel.start("ppo", "probe:both", steps=300, plan=plan, on=on, **SMALL) as run:
        for _ in run.rounds():
            pass
        pieces, latest = run.ring.timing_reports(), run.ring.latest_timings()
    assert [len(piece) for piece in pieces] == [2, 1, 1]
    meters = {told.who: told for piece in pieces for _, told in piece}
    assert len(meters) == (1 if on == "inline" else 4)
    did = {stage for told in meters.values() for stage in {spent.stage for spent in told.spent}}
    assert {"env", "policy", "memory", "learner", "update"} <= did
    for told in meters.values():
        assert sum(spent.seconds for spent in told.spent) == pytest.approx(told.seconds)
        assert all(a.ended == b.began for a, b in zip(told.events, told.events[1:], strict=False))
    assert [len(piece) for piece in latest] == [2, 1, 1]  # without being asked
    assert {said.who for piece in latest for said in piece} == set(meters)
    if on == "processes":
        assert all(said.resident > 2**20 for piece in latest for said in piece)
        ((_, learner),) = pieces[2]
        moved = {(spent.stage, spent.kind): spent.bytes for spent in learner.spent}
        assert moved["memory", TRANSPORT] > 0


def test_the_newest_mark_and_the_sums_are_seen_in_passing():
    now = iter([0.0, 3.0, 6.0])
    meter = Meter(clock=lambda: next(now, 8.0))  # made at 0
    assert meter.newest() == ("", 0.0)
    meter.mark("driver", PYTHON)  # 3
    meter.mark("policy", XLA)  # 6
    assert meter.newest() == ("policy", 6.0)
    assert meter.summary().seconds == 6.0
    assert meter.summary().spent == (
        TimeBucket("driver", PYTHON, 3.0, 1, 0),
        TimeBucket("policy", XLA, 3.0, 1, 0),
    )


def test_of_many_marks_the_newest_are_kept():
    meter = Meter(clock=iter(range(10**9)).__next__)  # a mark a second
    for _ in range(5_000):
        meter.mark("policy", XLA)
        meter.mark("env", SIMULATOR)
    meter.mark("driver", PYTHON)
    told = meter.report()
    assert len(told.events) == 4_000
    assert all(a.ended == b.began for a, b in zip(told.events, told.events[1:], strict=False))
    assert told.events[-1].stage == "driver"
    assert {spent.stage: spent.times for spent in told.spent}["policy"] == 5_000
