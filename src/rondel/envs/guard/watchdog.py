"""A watchdog that ends a call of an environment that takes too long.

An interrupt, as of Ctrl-C, ends what runs or waits in Python, and shows where that was. A call that
ignores it ends with the process. Native code that holds Python's lock stops our threads too: then
`faulthandler` ends the process, with status 1. Its only timer replaces one of the program's own.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from rondel.envs.errors import EnvError

_GRACE = 5.0  # seconds for an interrupt to take effect
_STATUS = 2  # of the command line, for a request that can't be met
_leave = os._exit  # also while `forbid_exit_zero` replaces it
_log = logging.getLogger("rondel")


class _Call(NamedTuple):
    env: str
    doing: str
    seconds: float
    since: float


class Watchdog:
    """Times calls from another thread.

    `when` says in what part of a run, for messages. `native` sets faulthandler's timer for each
    call too. Calls outside the main thread can't be interrupted: a warning names them.
    """

    def __init__(self, seconds: float, when: str, native: bool = False) -> None:
        self._seconds, self._when = seconds, when
        self._is_main = threading.current_thread() is threading.main_thread()
        self._native = native and self._is_main
        self._lock, self._over = threading.Lock(), threading.Event()
        self.now: _Call | None = None
        self._message = ""  # about the call that took too long
        self._thread: threading.Thread | None = None

    @contextmanager
    def watch(self, env: str, doing: str, seconds: float | None = None) -> Iterator[None]:
        """Time what an environment does within; an EnvError if it was interrupted for it."""
        before = self.now
        try:
            try:
                self._set(_Call(env, doing, seconds or self._seconds, time.monotonic()))
                yield
            finally:
                with self._lock:  # no interrupt is sent from here on
                    self._set(before)
        except KeyboardInterrupt as interrupt:
            message, self._message = self._message, ""
            if message:
                raise EnvError(message) from interrupt
            raise
        self._message = ""  # it came back after all

    def end(self) -> None:
        """Stop watching."""
        self._over.set()

    def _set(self, call: _Call | None) -> None:
        self.now = call
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="rondel-watchdog", daemon=True)
            self._thread.start()
        if self._native:
            faulthandler.cancel_dump_traceback_later()
        if self._native and call is not None:
            with suppress(OSError, ValueError, RuntimeError):  # there is no stderr
                faulthandler.dump_traceback_later(call.seconds + 2 * _GRACE, exit=True, file=2)

    def _look(self) -> None:
        while not self._over.wait(min(1.0, self._seconds / 4)):
            with self._lock:
                call = self.now
                if call is None or time.monotonic() - call.since < call.seconds:
                    continue
                self._message = (
                    f"{call.env} has taken {call.seconds:g} s in {call.doing} {self._when}. If it "
                    "does not hang, use a longer --deadline."
                )
                # a run's own handler of Ctrl-C would stop the run, not the call
                if self._is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            if not self._is_main:
                _log.warning("%s", self._message)
                return
            if not self._over.wait(_GRACE) and self.now is call:
                self._end_the_process()

    def _end_the_process(self) -> None:
        with suppress(OSError):
            os.write(2, f"rondel: {self._message}\n".encode())
        _leave(_STATUS)
