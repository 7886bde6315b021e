"""An environment that takes the process along, and what is said of it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from rondel.envs import lastwords

pytestmark = pytest.mark.fault

_PROGRAM = """
    import ctypes, os, sys, warnings
    from envs.strange import Plain
    from rondel.envs import check, make
    from rondel.envs.lastwords import last_words

    class Deadly(Plain):
        def reset(self, **asked):
            if {where!r} == "reset":
                {how}
            return super().reset(**asked)

        def step(self, action):
            if {where!r} == "step" and action == 1:
                {how}
            return super().step(action)

    with last_words():
        check(make(Deadly))
    print("alive")
"""


def tried(where: str, how: str) -> subprocess.CompletedProcess[str]:
    """A program that tries an environment out; its path is that of this one."""
    program = textwrap.dedent(_PROGRAM).format(where=where, how=how)
    start = f"import sys; sys.path[:] = {sys.path!r}\n"
    command = [sys.executable, "-c", start + program]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize(
    ("where", "how", "doing"),
    [
        ("reset", "os._exit(3)", "reset()"),
        ("step", "os._exit(3)", "step(1)"),
        ("step", "ctypes.string_at(0)", "step(1)"),
    ],
)
def test_what_it_was_doing_is_said(where: str, how: str, doing: str) -> None:
    ended = tried(where, how)
    assert ended.returncode
    *before, last = ended.stderr.strip().splitlines()
    assert "rondel: This process ended while " in last
    assert f"Deadly was tried out, in {doing}. If nobody killed it" in last
    crashed = "string_at" in how
    assert any("in step" in line for line in before) == crashed  # its own traceback


def test_one_that_lets_it_live_is_not_spoken_of() -> None:
    ended = tried("step", "pass")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "alive\n", "")


def test_an_environment_that_ends_the_program_by_an_exception_is_named() -> None:
    ended = tried("step", "sys.exit(0)")
    assert "raised SystemExit in step(1): 0" in ended.stderr
    assert ended.returncode == 1


def test_without_a_shell_nothing_is_said_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(lastwords.subprocess, "Popen", none)
    with lastwords.last_words():
        lastwords.trying("own:X", "step(3)")


def test_what_an_environment_has_forked_is_not_waited_for() -> None:
    """It has the line to the shell too, and may live as long as the run."""
    program = """
        import os, signal
        from rondel.envs import lastwords

        with lastwords.last_words():
            lastwords.trying("own:X", "its making")
            child = os.fork()
            if not child:
                signal.alarm(15)  # by which it ends, if nobody ends it before
                signal.pause()
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        os.kill(child, signal.SIGKILL)
    """
    start = f"import sys; sys.path[:] = {sys.path!r}\n"
    command = [sys.executable, "-c", start + textwrap.dedent(program)]
    ended = subprocess.run(command, timeout=240, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
