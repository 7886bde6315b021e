"""Ends a call of an environment that takes too long: by an interrupt, or else with this process.

An interrupt as of Ctrl-C ends what runs or waits in Python, and shows where that was. What native
code does not come back from can only be ended with the process; if it holds Python's lock meanwhile
no thread of ours runs, so then it is `faulthandler` that ends it, with its own status of 1. It has
one timer, and nobody can ask whether it is set: a program's own is replaced.
"""

from __future__ import annotations

import faulthandler
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rondel.envs.errors import EnvError

_GRACE = 5.0  # seconds for an interrupt to be heard
_STATUS = 2  # of the command line, for what can't be done
_leave = os._exit  # also where another is in its place
_log = logging.getLogger("rondel")


class Watchdog:
    """Looks from another thread how long a call takes. `last` is called before it ends the process.

    `when` says in what part of a run, for people. Only what the main thread does is ended: others
    can't be interrupted, and may not be all that there is.
    """

    def __init__(self, seconds: float, last: Callable[[], None], when: str) -> None:
        self._seconds, self._last, self._when = seconds, last, when
        self._is_main = threading.current_thread() is threading.main_thread()
        self._lock, self._over = threading.Lock(), threading.Event()
        self._env, self._since = "", math.inf
        self._doing: object = ""
        self._told = ""  # what was said
        self._call = 0  # how many there were
        self._limit = seconds  # of the one that is under way
        self._armed = False  # faulthandler's timer is set
        self._thread: threading.Thread | None = None

    @contextmanager
    def looking(self, env: str, doing: object, seconds: float) -> Iterator[None]:
        """Within it an environment does this, which is only written out if it takes too long."""
        try:
            try:
                self._begin(env, doing, seconds)
                yield
            finally:
                with self._lock:  # no interrupt is sent from here on
                    self._since = math.inf
        except KeyboardInterrupt as interrupt:
            if (blamed := self.blamed(interrupt)) is interrupt:
                raise
            raise blamed from interrupt
        self._told = ""  # it came back after all

    def note(self, env: str, doing: str) -> None:
        """An environment does this next, such as "step(3)", and might hold Python's lock."""
        self._begin(env, doing, self._seconds)
        if self._is_main:
            self._armed = True
            with suppress(OSError, ValueError, RuntimeError):  # there is no stderr
                faulthandler.dump_traceback_later(self._seconds + 2 * _GRACE, exit=True, file=2)

    def _begin(self, env: str, doing: object, seconds: float) -> None:
        self._call += 1
        self._limit = seconds
        self._env, self._doing, self._since = env, doing, time.monotonic()
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="rondel-watchdog", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """It is over; what took too long is raised here if it was interrupted just now."""
        with self._lock:
            self._over.set()
        if self._armed:
            faulthandler.cancel_dump_traceback_later()

    def blamed(self, interrupt: KeyboardInterrupt) -> BaseException:
        """What an interrupt means: a try that took too long, or that someone pressed Ctrl-C."""
        return EnvError(self._told) if self._told else interrupt

    def _look(self) -> None:
        while not self._over.wait(min(1.0, self._seconds / 4)):
            with self._lock:
                if self._over.is_set() or time.monotonic() - self._since < self._limit:
                    continue
                self._told = (
                    f"{self._env} has taken {self._limit:g} s in {self._doing} {self._when}: it "
                    "hangs, or needs a longer --deadline."
                )
                call = self._call
                if self._is_main and _hears_interrupts():
                    signal.pthread_kill(_main(), signal.SIGINT)
            if not self._is_main:
                _log.warning("%s", self._told)
                return
            if not self._over.wait(_GRACE) and self._hangs_in(call):
                self._end_the_process()

    def _hangs_in(self, call: int) -> bool:
        with self._lock:
            return self._call == call and self._since < math.inf

    def _end_the_process(self) -> None:
        self._last()
        with suppress(OSError):
            os.write(2, f"rondel: {self._told}\n".encode())
        _leave(_STATUS)


def _hears_interrupts() -> bool:
    """Does one raise KeyboardInterrupt in the main thread?"""
    handler: Any = signal.getsignal(signal.SIGINT)
    return handler is signal.default_int_handler


def _main() -> int:
    ident = threading.main_thread().ident
    assert ident is not None
    return ident
