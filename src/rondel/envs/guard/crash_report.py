"""Report what an environment was doing if it ends this process: a crash, os._exit, a hang.

A crash shows its own traceback, by `faulthandler`; a hang is the watchdog's.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from rondel.envs.errors import EnvError
from rondel.watchdog import Watchdog

EXITED_EARLY = "os._exit was called in this process, by an environment or a library."
_LONGEST = 300  # letters of an action

_trial: Watchdog | None = None


@contextmanager
def report_if_process_dies(seconds: float) -> Iterator[None]:
    """Print which `attempt` in this block ended the process, if it does end there.

    An attempt that takes longer than `seconds` is an EnvError, or ends the process.
    """
    global _trial
    outer = _trial
    mine = Watchdog(seconds, "when it was tried out before the run", EnvError, native=True)
    was_enabled = faulthandler.is_enabled()
    try:
        _trial = mine
        with suppress(OSError):  # there is no stderr
            if not was_enabled:
                faulthandler.enable(2, all_threads=False)
        with forbid_exit_zero(EXITED_EARLY):
            yield
    finally:
        mine.end()
        _trial = outer
        if not was_enabled:
            faulthandler.disable()


@contextmanager
def attempt(env: str, doing: str) -> Iterator[None]:
    """Watch what an environment does within, such as "step(3)", if it is on trial."""
    if _trial is None:
        yield
        return
    doing = " ".join(doing.split())  # one line
    with _trial.watch(env, doing if len(doing) <= _LONGEST else f"{doing[:_LONGEST]}…"):
        yield


@contextmanager
def forbid_exit_zero(message: str) -> Iterator[None]:
    """`os._exit(0)` of an environment is no success of a run: exit with 2 and a message."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may replace what is the whole process's
        return
    leave, mine, active = os._exit, os.getpid(), True

    def leave_with_failure(status: int) -> NoReturn:
        if active and os.getpid() == mine:
            call = _trial and _trial.now
            during = f" It was in {call.doing} of {call.env}." if call else ""
            with suppress(OSError):
                os.write(2, f"rondel: {message}{during}\n".encode())
            status = status or 2
        leave(status)

    os._exit = leave_with_failure
    try:
        yield
    finally:
        active = False  # for code that kept a reference
        os._exit = leave
