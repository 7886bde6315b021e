"""A run inside a worker of another run."""

from __future__ import annotations

import os
import signal
import tempfile
from functools import partial
from typing import Any

import pytest

import rondel
from execution.backends import tiny
from rondel.execution.backends.processes.backend import Processes
from rondel.execution.backends.threads import Threads
from rondel.run.training import signals


def train_in_the_first_step(on: str, steps: int) -> None:
    """An environment that trains: it fails if that does."""
    if steps != 1:
        return
    with tempfile.TemporaryDirectory() as out:
        run = rondel.train(
            tiny.make,
            tiny.world(),
            steps=16,
            out=out,
            eval_episodes=0,
            lanes=tiny.LANES,
            block=2,
            plan="actor*2 | learner",
            on=on,
        )
    if run.steps != 16:
        raise AssertionError(run.steps)


@pytest.mark.parametrize(
    ("kind", "on"), [(Processes, "processes"), (Processes, "inline"), (Threads, "processes")]
)
def test_a_run_inside_a_run(kind: Any, on: str) -> None:
    task = tiny.task(partial(train_in_the_first_step, on))
    tiny.run(kind(), "env*2 | policy | learner", task, steps=40)


def test_a_run_inside_a_process_leaves_ctrl_c_to_the_driver() -> None:
    """There it is ignored; else the inner run would stop, and fail the outer one."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with signals.stop_on_signals() as asked:
            os.kill(os.getpid(), signal.SIGINT)
        assert not asked.is_set()
    finally:
        signal.signal(signal.SIGINT, before)
