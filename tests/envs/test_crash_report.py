"""An environment that takes the process along, and what is said of it."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import NoReturn

import pytest

import rondel
from rondel import watchdog
from rondel.envs.errors import EnvError
from rondel.envs.guard import crash_report
from rondel.run.playback import evaluate
from rondel.run.setup import prepare
from rondel.run.training import train_loop

pytestmark = pytest.mark.fault

_PROGRAM = """
    import ctypes, os, sys, time, warnings
    from envs.strange import Plain
    from rondel import watchdog
    from rondel.envs.guard.check import check
    from rondel.envs.registry import make
    from rondel.envs.guard.crash_report import report_if_process_dies

    def deaf():
        while True:
            try:
                time.sleep(3600)
            except BaseException:
                pass

    watchdog._GRACE = 1.0
    class Deadly(Plain):
        def reset(self, **asked):
            if {where!r} == "reset":
                {how}
            return super().reset(**asked)

        def step(self, action):
            if {where!r} == "step" and action == 1:
                {how}
            return super().step(action)

    with report_if_process_dies({seconds}):
        check(make(Deadly))
    print("alive")
"""


def tried(where: str, how: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
    """A program that tries an environment out; its path is that of this one."""
    program = textwrap.dedent(_PROGRAM).format(where=where, how=how, seconds=seconds)
    start = f"import sys; sys.path[:] = {sys.path!r}\n"
    command = [sys.executable, "-c", start + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize(
    ("where", "how", "doing"),
    [
        ("reset", "os._exit(3)", "reset()"),
        ("step", "os._exit(3)", "step(1)"),
        ("step", "os._exit(0)", "step(1)"),
    ],
)
def test_what_it_was_doing_is_said(where: str, how: str, doing: str) -> None:
    ended = tried(where, how)
    assert ended.returncode not in (0, 1)
    *before, last = ended.stderr.strip().splitlines()
    assert last.startswith("rondel: os._exit was called in this process, by an environment or a ")
    assert last.endswith(f"library. It was in {doing} of own:Deadly.")
    assert before == []


def test_a_crash_shows_where_it_was() -> None:
    ended = tried("step", "ctypes.string_at(0)")
    assert ended.returncode not in (0, 1)
    assert "Fatal Python error: Segmentation fault" in ended.stderr
    assert " in step\n" in ended.stderr


def test_one_that_lets_it_live_is_not_spoken_of() -> None:
    ended = tried("step", "pass")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "alive\n", "")


def test_an_environment_that_ends_the_program_by_an_exception_is_named() -> None:
    ended = tried("step", "sys.exit(0)")
    assert "raised SystemExit in step(1): 0" in ended.stderr
    assert ended.returncode == 1


@pytest.mark.parametrize("where", ["reset", "step"])
def test_one_that_hangs_is_an_error_that_shows_where(where: str) -> None:
    ended = tried(where, "time.sleep(3600)", seconds=1.0)
    doing = {"reset": "reset()", "step": "step(1)"}[where]
    assert f"EnvError: own:Deadly has taken 1 s in {doing} when it was tried out" in ended.stderr
    assert f", in {where}\n" in ended.stderr
    assert ended.returncode == 1


def test_one_that_hears_no_interrupt_ends_with_the_program() -> None:
    ended = tried("step", "deaf()", seconds=1.0)
    assert ended.stderr.startswith("rondel: own:Deadly has taken 1 s in step(1) when it was tried")
    assert len(ended.stderr.splitlines()) == 1
    assert ended.returncode == 2


def test_native_code_that_lets_no_python_run_ends_with_the_program() -> None:
    ended = tried("step", "ctypes.PyDLL(None).sleep(3600)", seconds=1.0)
    assert "in step" in ended.stderr  # its own traceback
    assert ended.returncode == 1


def test_ctrl_c_stays_what_it_is() -> None:
    ended = tried("step", "raise KeyboardInterrupt")
    assert ended.stderr.strip().splitlines()[-1] == "KeyboardInterrupt"


def test_in_another_thread_one_that_hangs_is_told_of() -> None:
    """It can't be interrupted there, and the program is not its to end."""
    said: list[str] = []
    heard = threading.Event()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())
            heard.set()

    def hang() -> None:
        report = crash_report.report_if_process_dies(0.05)
        with report, crash_report.attempt("own:X", "step(3)"):
            heard.wait(60)

    logging.getLogger("rondel").addHandler(told := Told())
    try:
        thread = threading.Thread(target=hang)
        thread.start()
        thread.join()
    finally:
        logging.getLogger("rondel").removeHandler(told)
    assert said == [
        "own:X has taken 0.05 s in step(3) when it was tried out before the run. If it does not "
        "hang, use a longer --deadline."
    ]


def test_whoever_took_os_exit_as_theirs_has_the_real_one_later() -> None:
    program = """
        import os
        from rondel.envs.guard import crash_report

        with crash_report.report_if_process_dies(60.0):
            leave = os._exit
        leave(0)
    """
    start = f"import sys; sys.path[:] = {sys.path!r}\n"
    command = [sys.executable, "-c", start + textwrap.dedent(program)]
    assert subprocess.run(command, timeout=240, check=False).returncode == 0


@pytest.mark.parametrize("env", ["CartPole-v1", "jax:CartPole-v1?velocities=false", "probe:one"])
def test_built_in_environments_meet_no_guard(
    env: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def guard(*_: object) -> NoReturn:
        raise AssertionError("a guard")

    monkeypatch.setattr(prepare, "report_if_process_dies", guard)
    for module in (train_loop, evaluate):
        monkeypatch.setattr(module, "forbid_exit_zero", guard)
    small = {"lanes": 4, "rollout": 8, "minibatches": 1, "epochs": 1, "hidden": (4,)}
    rondel.train("ppo", env, steps=32, eval_episodes=2, out=tmp_path / "run", **small)
    with pytest.raises(AssertionError, match="a guard"):
        rondel.train("ppo", "gymnasium:CartPole-v1", steps=32, out=tmp_path / "other", **small)


def test_a_call_within_another_leaves_that_its_time() -> None:
    dog = watchdog.Watchdog(0.2, "here", EnvError)
    late = pytest.raises(EnvError, match=r"^own:X has taken 0.2 s in make\(\) here\.")
    with late, dog.watch("own:X", "make()"):
        with dog.watch("own:X", "reset()"):
            pass
        time.sleep(30)
    dog.end()
