"""An environment that takes too long in the driver's own process is told of."""

from __future__ import annotations

import logging
import time

import pytest

from rondel.execution.telemetry.timeouts import HangWarning, Timeouts, timeouts_for
from rondel.execution.telemetry.timing import PYTHON, XLA, Meter

pytestmark = pytest.mark.fault


def _wait_for(caplog, n: int) -> list[str]:
    end = time.monotonic() + 20.0
    while len(caplog.messages) < n and time.monotonic() < end:
        time.sleep(0.01)
    return caplog.messages


def test_a_short_deadline_leaves_time_to_compile():
    assert timeouts_for(2.0) == Timeouts(2.0, 60.0)
    assert timeouts_for(600.0) == Timeouts(600.0, 600.0)
    assert timeouts_for(2.0).of("produce", {"begin"}) == 60.0
    assert timeouts_for(2.0).twice().of("begin", {"begin"}) == 4.0


def test_a_step_that_does_not_return_is_said_once(caplog):
    meter = Meter()
    meter.mark("policy", XLA)  # from here on it is the environment's turn
    with caplog.at_level(logging.WARNING, "rondel"):
        watch = HangWarning("Slow-v0", meter, 0.05)
        _wait_for(caplog, 1)
        time.sleep(0.2)
        meter.mark("env", PYTHON)  # now it is the policy's, which may take its time
        time.sleep(0.2)
        watch.end()
    (said,) = caplog.messages
    assert said.startswith("Slow-v0 has taken ")
    assert said.endswith("Use --plan 'actor | learner' --on processes.")
