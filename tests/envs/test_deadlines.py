"""An environment that hangs while it is played in: named, and ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from typing import Any

import gymnasium
import numpy as np
import pytest

import rondel
from rondel import watchdog
from rondel.envs.errors import EnvError
from rondel.envs.guard import guarded_env as guarding
from rondel.envs.guard.guarded_env import with_deadline
from rondel.envs.registry import make
from rondel.run.training.signals import stop_on_signals


class Hanging(gymnasium.Env[Any, Any]):
    """It hangs in its third step or in a reset, if it is told to."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    hangs = ""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        self._hang("reset")
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 3:
            self._hang("step")
        return np.zeros(2, np.float32), 1.0, self.steps == 5, False, {}

    def _hang(self, where: str) -> None:
        if self.hangs == where:
            time.sleep(3600)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done for the first time has no minute here."""
    monkeypatch.setattr(guarding, "FIRST", 0.0)


@pytest.mark.parametrize("where", ["reset", "step"])
def test_an_evaluation_that_hangs_ends_with_a_sentence(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"lanes": 2, "rollout": 8, "minibatches": 1, "hidden": (4,), "deadline": 1.0}
    with rondel.start("ppo", Hanging, steps=16, **small) as run:
        of_the_run = threading.enumerate()  # also a watchdog, which only warns
        list(run)
        assert run.evaluate(4).returns.tolist() == [5.0] * 4
        monkeypatch.setattr(Hanging, "hangs", where)
        with pytest.raises(EnvError, match=rf"own:Hanging has taken 1 s in {where}\(.*played in"):
            run.evaluate(4)
        looks_on = [t for t in threading.enumerate() if t.name == "rondel-watchdog"]
        looks_on = [thread for thread in looks_on if thread not in of_the_run]
        for thread in looks_on:
            thread.join(10)
        assert not any(thread.is_alive() for thread in looks_on)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_others_do_in_between_is_not_its_time() -> None:
    ended: list[bool] = []

    class Quick:
        def step(self, action: Any) -> Any:
            ended.append(True)

        def close(self) -> None:
            pass

    world = make("gymnasium:CartPole-v1")
    env = with_deadline(world._replace(make=lambda *_: Quick()), 2.0).make(1, 0)
    env.step(np.array([0]))
    time.sleep(4.0)
    env.step(np.array([0]))
    env.close()
    assert len(ended) == 2


def test_what_is_done_for_the_first_time_has_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        def step(self, action: Any) -> Any:
            time.sleep(1.0)

        def close(self) -> None:
            pass

    monkeypatch.setattr(guarding, "FIRST", 60.0)
    world = make("gymnasium:CartPole-v1")
    env = with_deadline(world._replace(make=lambda *_: Slow()), 0.2).make(1, 0)
    env.step(np.array([0]))
    with pytest.raises(EnvError, match=r"has taken 0.2 s in step"):
        env.step(np.array([0]))
    env.close()


def test_one_that_came_back_too_late_for_an_interrupt_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where Ctrl-C is a run's, nothing is sent; and the process is not ended for what is over."""

    class Slow:
        def step(self, action: Any) -> Any:
            time.sleep(0.5)

        def close(self) -> None:
            pass

    monkeypatch.setattr(watchdog, "_GRACE", 0.5)
    monkeypatch.setattr(watchdog.Watchdog, "_end_the_process", lambda _: ended.append(True))
    ended: list[bool] = []
    world = make("gymnasium:CartPole-v1")
    env = with_deadline(world._replace(make=lambda *_: Slow()), 0.2).make(1, 0)
    with stop_on_signals():
        env.step(np.array([0]))
        time.sleep(1.5)
    env.close()
    assert not ended


def test_ctrl_c_stays_what_it_is() -> None:
    class Interrupted:
        def step(self, action: Any) -> Any:
            signal.raise_signal(signal.SIGINT)

        def close(self) -> None:
            pass

    world = make("gymnasium:CartPole-v1")
    env = with_deadline(world._replace(make=lambda *_: Interrupted()), 5.0).make(1, 0)
    with pytest.raises(KeyboardInterrupt):
        env.step(np.array([0]))
    env.close()


def test_a_run_has_its_deadline_wherever_it_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"lanes": 2, "rollout": 8, "minibatches": 1, "hidden": (4,), "deadline": 1.0}
    with rondel.start("ppo", Hanging, steps=16, **small) as run:
        monkeypatch.setattr(Hanging, "hangs", "step")
        with pytest.raises(EnvError, match="has taken 1 s"):
            rondel.evaluate(run, episodes=2)


def test_traceable_ones_are_left_as_they_are() -> None:
    env = make("jax:CartPole-v1")
    assert with_deadline(env) is env


NATIVE = """
import ctypes, numpy as np
from rondel.envs.registry import make
from rondel.envs.guard import guarded_env as guarding
from rondel.envs.guard.guarded_env import with_deadline
from rondel.envs.guard.crash_report import forbid_exit_zero
guarding.FIRST = 0.0
sleeps = ctypes.CDLL(None).sleep
class Deaf:
    def step(self, action):
        while True:
            try: sleeps(3600)
            except KeyboardInterrupt: pass
world = make("gymnasium:CartPole-v1")
with forbid_exit_zero("Nobody else called it."):
    with_deadline(world._replace(make=lambda *_: Deaf()), 0.5).make(1, 0).step(np.array([1]))
"""


def test_native_code_that_hears_nothing_ends_with_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NATIVE], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "rondel: gymnasium:CartPole-v1 has taken 0.5 s in step() while it was played in. If it "
        "does not hang, use a longer --deadline."
    )
