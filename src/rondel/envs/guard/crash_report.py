"""Report what an environment was doing if it ends this process: a crash, os._exit, a hang.

Nothing can be reported from inside then. So a shell, which starts in a few milliseconds, reads each
attempt before it is made, and prints the last one when it reads no more. An empty line ends it: a
process that the environment has forked keeps the pipe open.
"""

from __future__ import annotations

import faulthandler
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from rondel.envs.guard.watchdog import Watchdog

EXITED_EARLY = "os._exit was called in this process, by an environment or a library."
_SHELL = (
    'while IFS= read -r said; do [ -n "$said" ] || exit 0; last=$said; done; '
    'printf "%s\\n" "$last" >&2'
)
_LONGEST = 300  # letters of an action


class _Trial:
    """The attempts before a run, with the shell that reports the last one."""

    def __init__(self, seconds: float) -> None:
        self.watchdog = Watchdog(
            seconds, "when it was tried out before the run", self.end_report, native=True
        )
        self._shell: subprocess.Popen[bytes] | None = None

    def note(self, text: str) -> None:
        if self._shell is None:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SHELL], stdin=subprocess.PIPE, bufsize=0
            )
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{text}\n".encode())

    def end_report(self) -> None:
        """There is nothing to report."""
        if self._shell is not None:
            with suppress(OSError):
                self.note("")
            with suppress(OSError):
                self._shell.communicate()


_trial: _Trial | None = None


@contextmanager
def report_if_process_dies(seconds: float) -> Iterator[None]:
    """Report the last `attempt` within if this process ends there, with where it crashed.

    An attempt that takes longer than `seconds` is an EnvError, or ends the process.
    """
    global _trial
    outer, mine = _trial, _Trial(seconds)
    was_enabled = faulthandler.is_enabled()
    try:
        _trial = mine
        with suppress(OSError):  # there is no stderr
            if not was_enabled:
                faulthandler.enable(2, all_threads=False)
        with forbid_exit_zero():
            yield
    finally:
        mine.watchdog.end()
        _trial = outer
        if not was_enabled:
            faulthandler.disable()
        mine.end_report()


@contextmanager
def attempt(env: str, doing: str) -> Iterator[None]:
    """Note what an environment does within, such as "step(3)", if it is on trial."""
    if _trial is None:
        yield
        return
    doing = shortened(doing)
    with suppress(OSError):  # there is no shell here, or Ctrl-C has ended it
        _trial.note(
            f"rondel: This process ended while {env} was tried out, in {doing}. If nobody killed "
            "it, the environment did: it crashed there, hung there, or called os._exit."
        )
    with _trial.watchdog.watch(env, doing):
        yield


@contextmanager
def forbid_exit_zero(message: str = "") -> Iterator[None]:
    """`os._exit(0)` of an environment is no success of a run: exit with 2 and a message."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may replace what is the whole process's
        return
    leave, mine, active = os._exit, os.getpid(), True

    def leave_with_failure(status: int) -> NoReturn:
        if active and os.getpid() == mine:
            if message:
                with suppress(OSError):
                    os.write(2, f"rondel: {message}\n".encode())
            status = status or 2
        leave(status)

    os._exit = leave_with_failure
    try:
        yield
    finally:
        active = False  # for code that kept a reference
        os._exit = leave


def shortened(what: str) -> str:
    """One line, cut if it is long."""
    doing = " ".join(what.split())
    return doing if len(doing) <= _LONGEST else f"{doing[:_LONGEST]}…"
