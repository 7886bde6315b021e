"""A watchdog that ends a call of an environment that takes too long, or warns of it.

A call in the main thread can be ended. An interrupt, as of Ctrl-C, ends what runs or waits in
Python, and shows where that was. A call that ignores it ends with the process. Native code that
holds Python's lock stops our threads too: then `faulthandler` ends the process, with status 1. Its
only timer replaces one of the program's own.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

_GRACE = 5.0  # seconds for an interrupt to take effect
_STATUS = 2  # of the command line, for a request that can't be met
_leave = os._exit  # also while `forbid_exit_zero` replaces it
_clock = time.perf_counter  # as that of a `Meter`
_log = logging.getLogger("rondel")
_HANGS = (
    "{env} has taken {seconds:g} s in {doing} {when}. If it does not hang, use a longer --deadline."
)
_IN_DRIVER = (
    "{env} has taken {seconds:g} s for a step. It runs in the driver, so it can't be ended. "
    "Use --plan 'actor | learner' --on processes."
)


class Call(NamedTuple):
    """What an environment is doing."""

    env: str
    doing: str
    seconds: float  # that it may take
    since: float  # by `time.perf_counter`


class Watchdog:
    """Times calls from another thread, and ends one in the main thread that is late.

    `when` says in what part of a run, for messages; `error` is raised in place of the interrupt.
    `native` sets faulthandler's timer for each call too. A call outside the main thread, and one of
    the driver, which `find` gives, can't be ended: a warning names it.
    """

    def __init__(
        self,
        seconds: float,
        when: str = "",
        error: type[Exception] = RuntimeError,
        native: bool = False,
        find: Callable[[], Call | None] | None = None,
    ) -> None:
        self._seconds, self._when, self._error = seconds, when, error
        is_main = threading.current_thread() is threading.main_thread()
        self._ends = is_main and find is None
        self._native = native and self._ends
        self._lock, self._over = threading.Lock(), threading.Event()
        self.now: Call | None = None
        self._find, self._sentence = find or (lambda: self.now), _IN_DRIVER if find else _HANGS
        self._message = ""  # about the call that took too long
        self._thread: threading.Thread | None = None
        if find:
            self._start()

    @contextmanager
    def watch(self, env: str, doing: str, seconds: float | None = None) -> Iterator[None]:
        """Time what an environment does within; the error if it was interrupted for it."""
        before = self.now
        try:
            try:
                self._set(Call(env, doing, seconds or self._seconds, _clock()))
                yield
            finally:
                with self._lock:  # no interrupt is sent from here on
                    self._set(before)
        except KeyboardInterrupt as interrupt:
            message, self._message = self._message, ""
            if message:
                raise self._error(message) from interrupt
            raise
        self._message = ""  # it came back after all

    def end(self) -> None:
        """Stop watching."""
        self._over.set()

    def _set(self, call: Call | None) -> None:
        self.now = call
        if self._thread is None:
            self._start()
        if self._native:
            faulthandler.cancel_dump_traceback_later()
        if self._native and call is not None:
            with suppress(OSError, ValueError, RuntimeError):  # there is no stderr
                faulthandler.dump_traceback_later(call.seconds + 2 * _GRACE, exit=True, file=2)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._look, name="rondel-watchdog", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        late = None  # the call that there was a warning of
        while not self._over.wait(min(1.0, self._seconds / 4)):
            with self._lock:
                call = self._find()
                if call is None or call == late or _clock() - call.since < call.seconds:
                    continue
                self._message = self._sentence.format(**call._asdict(), when=self._when)
                # a run's own handler of Ctrl-C would stop the run, not the call
                if self._ends and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            if not self._ends:
                late = call
                _log.warning("%s", self._message)
            elif not self._over.wait(_GRACE) and self.now is call:
                self._end_the_process()

    def _end_the_process(self) -> None:
        with suppress(OSError):
            os.write(2, f"rondel: {self._message}\n".encode())
        _leave(_STATUS)
