"""Says what an environment was doing if it takes this process along: a crash, os._exit, a hang.

Nothing can be said from inside then. So a shell, which starts in a few milliseconds, is told
what is tried out before each try, and says the last of it if it hears no more. An empty line is
the end: that it hears no more would be late news where an environment has forked.
"""

from __future__ import annotations

import faulthandler
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, NoReturn

from rondel.envs.guard.watchdog import Watchdog

EXITED_EARLY = "os._exit was called in this process, by an environment or a library."
_SHELL = (
    'while IFS= read -r said; do [ -n "$said" ] || exit 0; last=$said; done; '
    'printf "%s\\n" "$last" >&2'
)
_LONGEST = 300  # letters of an action


class _Words:
    """The shell, which is started with the first try."""

    def __init__(self) -> None:
        self._shell: subprocess.Popen[bytes] | None = None

    def say(self, text: str) -> None:
        if self._shell is None:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _SHELL], stdin=subprocess.PIPE, bufsize=0
            )
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{text}\n".encode())

    def end(self) -> None:
        """There is nothing to be said."""
        if self._shell is not None:
            with suppress(OSError):
                self.say("")
            with suppress(OSError):
                self._shell.communicate()


class _Trial(NamedTuple):
    words: _Words
    watchdog: Watchdog


_trial: _Trial | None = None


@contextmanager
def report_if_process_dies(seconds: float) -> Iterator[None]:
    """What is tried out inside is told of if this process ends there, with where it crashed.

    And if a single try takes longer than so many seconds: that is an EnvError, or ends the process.
    """
    global _trial
    outer, words = _trial, _Words()
    mine = _Trial(words, Watchdog(seconds, words.end, "when it was tried out before the run"))
    is_silent = not faulthandler.is_enabled()
    try:
        try:
            _trial = mine
            with suppress(OSError):  # nobody could read it
                if is_silent:
                    faulthandler.enable(2, all_threads=False)
            with forbid_exit_zero():
                yield
        finally:
            mine.watchdog.end()
            _trial = outer
            if is_silent:
                faulthandler.disable()
            words.end()
    except KeyboardInterrupt as interrupt:
        if (blamed := mine.watchdog.blamed(interrupt)) is interrupt:
            raise
        raise blamed from interrupt


@contextmanager
def forbid_exit_zero(said: str = "") -> Iterator[None]:
    """`os._exit(0)` of an environment is no success of a run: here it exits with 2, and says so."""
    if threading.current_thread() is not threading.main_thread():
        yield  # it is for the main thread to say what this process is for
        return
    leave, mine, tries = os._exit, os.getpid(), True

    def leave_with_failure(status: int) -> NoReturn:
        if tries and os.getpid() == mine:
            if said:
                with suppress(OSError):
                    os.write(2, f"rondel: {said}\n".encode())
            status = status or 2
        leave(status)

    os._exit = leave_with_failure
    try:
        yield
    finally:
        tries = False  # whoever has taken it as theirs
        os._exit = leave


def shortened(what: str) -> str:
    """It in one line, of which only the beginning is said if it is long."""
    doing = " ".join(what.split())
    return doing if len(doing) <= _LONGEST else f"{doing[:_LONGEST]}…"


def note_attempt(env: str, what: str) -> None:
    """An environment does this next, such as "step(3)"."""
    if _trial is None:
        return
    doing = shortened(what)
    with suppress(OSError):  # there is no shell here, or Ctrl-C has ended it
        _trial.words.say(
            f"rondel: This process ended while {env} was tried out, in {doing}. If nobody killed "
            "it, the environment did: it crashed there, hung there, or called os._exit."
        )
    _trial.watchdog.note(env, doing)
