"""What is decided when copies die: a table."""

from __future__ import annotations

import re

import pytest

from rondel.execution.backends.recovery.policy import (
    MOST_BYTES,
    Death,
    Restart,
    Stop,
    Unsaved,
    because,
    decide,
    is_due,
    is_urgent,
    words,
)

pytestmark = pytest.mark.fault

KILLED = Death("was killed by SIGKILL", killed=True, action="", progress=True)
STUCK = KILLED._replace(progress=False)
CRASHED = Death("was killed by SIGSEGV", killed=False, action="step(3)", progress=False)
LUCKY = CRASHED._replace(progress=True)
HUNG = Death("did not answer `step` within 9 s", killed=False, action="step(3)", progress=False)
OTHER = CRASHED._replace(action="step(1)")
UNKNOWN = CRASHED._replace(action="")
RESETS = [CRASHED._replace(action=f"reset(seed={seed})") for seed in (7, 8, 9)]

TABLE = {
    "a first death": ([KILLED], 20, Restart(0.0)),
    "a first death before anything was done": ([STUCK], 20, Restart(0.0)),
    "any number of deaths with progress between": ([KILLED] * 500, 1, Restart(0.0)),
    "a second one without progress waits": ([KILLED, STUCK], 20, Restart(0.2)),
    "then twice as long": ([KILLED, STUCK, STUCK], 20, Restart(0.4)),
    "but not for ever": ([KILLED] + [STUCK] * 15, 20, Restart(10.0)),
    "the pause is over with progress": ([KILLED, STUCK, STUCK, KILLED], 20, Restart(0.0)),
    "a crash": ([CRASHED], 20, Restart(0.0)),
    "two at one action": ([CRASHED] * 2, 20, Restart(0.2)),
    "three, but not all at one action": ([CRASHED, OTHER, CRASHED], 20, Restart(0.4)),
    "kills at one action are an accident": ([CRASHED._replace(killed=True)] * 5, 20, Restart(1.6)),
    "crashes whose action is not known": ([UNKNOWN] * 5, 20, Restart(1.6)),
    "crashes at one action with progress": ([LUCKY] * 9, 20, Restart(0.0)),
    "two crashes in resets": (RESETS[:2], 20, Restart(0.2)),
}


@pytest.mark.parametrize("case", TABLE)
def test_a_copy_is_started_again(case: str) -> None:
    deaths, restarts, instruction = TABLE[case]
    assert decide(deaths, restarts) == pytest.approx(instruction)


STOPS = {
    "no restarts at all": ([KILLED], 0, r"^was killed by SIGKILL\.$"),
    "one too many": ([KILLED] + [STUCK] * 3, 3, "made no progress in 3 restarts"),
    "three crashes at one action": ([CRASHED] * 3, 20, r"SIGSEGV in step\(3\), for the third time"),
    "three times hung there": ([HUNG] * 3, 20, r"within 9 s in step\(3\), for the third time"),
    "ten with progress": ([LUCKY] * 10, 20, r"in step\(3\), for the 10th time"),
    "no restarts, and it is known where": ([CRASHED], 0, r"^was killed by SIGSEGV in step\(3\)\.$"),
    "three crashes in resets of any seeds": (
        RESETS,
        20,
        r"SIGSEGV in reset\(seed=9\), for the third time in a row\. Fix the environment\.$",
    ),
    "where the last crash was is not known yet": (
        [*RESETS[:2], UNKNOWN],
        2,
        r"2 restarts\. Before that, it was killed by SIGSEGV in reset\(seed=8\)\. Resume",
    ),
    "after others": ([OTHER, KILLED, CRASHED, CRASHED, CRASHED], 20, r"step\(3\), for the third"),
}


@pytest.mark.parametrize("case", STOPS)
def test_a_run_is_stopped(case: str) -> None:
    deaths, restarts, reason = STOPS[case]
    instruction = decide(deaths, restarts)
    assert isinstance(instruction, Stop)
    assert re.search(reason, instruction.reason), instruction.reason


def test_who_missed_another_says_what_became_of_that_one_and_no_more() -> None:
    how = because("env 1 of 2 took no step within 9 s: its environment hangs, or is slower.")
    hung = Death(how, killed=False, action="step(3)", progress=False)
    assert words(hung) == "stopped, because env 1 of 2 took no step within 9 s in step(3)"
    assert because("env 1 of 2 is gone.") == "stopped, because env 1 of 2 is gone"


@pytest.mark.parametrize(
    ("unsaved", "due"),
    [
        (Unsaved(bytes=0, seconds=0.1, cost=0.0), False),
        (Unsaved(bytes=0, seconds=1.0, cost=0.0), True),
        (Unsaved(bytes=0, seconds=39.0, cost=0.2), False),  # 0.5 % of the time, no more
        (Unsaved(bytes=0, seconds=40.1, cost=0.2), True),
        (Unsaved(bytes=32 * 2**20, seconds=9.0, cost=0.2), False),  # of many messages: 2 %
        (Unsaved(bytes=32 * 2**20, seconds=10.1, cost=0.2), True),
        (Unsaved(bytes=MOST_BYTES, seconds=0.0, cost=9.0), True),  # the bound comes first
    ],
)
def test_states_are_kept_seldom_but_within_the_bound(unsaved: Unsaved, due: bool) -> None:
    assert is_due(unsaved) == due


def test_at_twice_the_bound_the_run_waits() -> None:
    just_below = Unsaved(bytes=2 * MOST_BYTES - 1, seconds=9.0, cost=0.0)
    assert not is_urgent(just_below)
    assert is_urgent(just_below._replace(bytes=2 * MOST_BYTES))


def test_resets_that_fail_now_and_then_end_no_run() -> None:
    deaths = [Death("exited with 3", False, f"reset(seed={i})", True) for i in range(12)]
    assert isinstance(decide(deaths, restarts=20), Restart)
