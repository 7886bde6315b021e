"""An environment that takes too long in the driver's own process is told of."""

from __future__ import annotations

import logging
import time
from functools import partial

import gymnasium
import numpy as np
import pytest

import rondel
from rondel.execution.backends.inline import _host_step
from rondel.execution.telemetry.timeouts import Timeouts, timeouts_for
from rondel.execution.telemetry.timing import PYTHON, XLA, Meter
from rondel.watchdog import Watchdog

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
        watch = Watchdog(0.05, find=partial(_host_step, "Slow-v0", meter, 0.05))
        _wait_for(caplog, 1)
        time.sleep(0.2)
        meter.mark("env", PYTHON)  # now it is the policy's, which may take its time
        time.sleep(0.2)
        watch.end()
    (said,) = caplog.messages
    assert said == (
        "Slow-v0 has taken 0.05 s for a step. It runs in the driver, so it can't be ended. "
        "Use --plan 'actor | learner' --on processes."
    )


def test_a_step_that_hangs_in_a_run_is_warned_of(caplog):
    """In the driver a step can't be ended: the run goes on once it is over."""

    class Slow(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (2,))
        action_space = gymnasium.spaces.Discrete(2)
        late = False

        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {}

        def step(self, action):
            if Slow.late:
                Slow.late = False
                _wait_for(caplog, 1)
            return np.zeros(2, np.float32), 1.0, False, False, {}

    small = {"lanes": 2, "rollout": 8, "minibatches": 1, "hidden": (4,), "deadline": 0.2}
    with rondel.start("ppo", Slow, steps=32, on="inline", **small) as run:
        rounds = iter(run)
        next(rounds)
        Slow.late = True
        with caplog.at_level(logging.WARNING, "rondel"):
            list(rounds)
    assert caplog.messages[0].startswith("own:Slow has taken 0.2 s for a step. It runs in")
