"""Ctrl-C and SIGTERM stop a run after its round, so that it can save a checkpoint."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from rondel.execution.backends import registry


class Terminated(KeyboardInterrupt, SystemExit):
    """SIGTERM, as `kill`, Slurm and Kubernetes send it: a Ctrl-C with an exit status of its own.

    If nobody catches it, the process ends with that status and without a traceback.
    """

    def __init__(self) -> None:
        super().__init__()
        self.code = 128 + signal.SIGTERM


class StopRequest:
    """Whether a run should stop after its round. No Event: handlers must not wait for a lock."""

    def __init__(self) -> None:
        self._asked = False
        self._by: type[KeyboardInterrupt] = KeyboardInterrupt
        self.hurried = False  # a second Ctrl-C did not wait for the end of the round

    def is_set(self) -> bool:
        return self._asked

    def set(self) -> None:
        self._asked = True

    def error(self) -> KeyboardInterrupt:
        """The exception to raise once all is saved."""
        return self._by()

    def listen(self) -> None:
        """Handle Ctrl-C and SIGTERM, if this is the main thread."""
        if threading.current_thread() is threading.main_thread():
            for signum in filter(_is_ours, (signal.SIGINT, signal.SIGTERM)):
                signal.signal(signum, self._ask)

    def _ask(self, signum: int, *_: Any) -> None:
        """A second Ctrl-C does not wait; SIGTERM may come twice at once (as of `timeout`)."""
        if signum == signal.SIGTERM:
            self._by = Terminated
        elif self._asked:
            self.hurried = True
            raise KeyboardInterrupt
        self._asked = True


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Set a `StopRequest` on Ctrl-C and SIGTERM."""
    stop = StopRequest()
    with _restored(signal.SIGINT, signal.SIGTERM):
        stop.listen()
        yield stop


@contextmanager
def end_on_sigterm() -> Iterator[None]:
    """End at once on SIGTERM, as on Ctrl-C: for when all is saved."""

    def end(*_: Any) -> None:
        raise Terminated

    with _restored(signal.SIGTERM):
        if threading.current_thread() is threading.main_thread() and _is_ours(signal.SIGTERM):
            signal.signal(signal.SIGTERM, end)
        yield


@contextmanager
def _restored(*signums: int) -> Iterator[None]:
    """Restore the handlers at the end."""
    with ExitStack() as after:
        if threading.current_thread() is threading.main_thread():
            for signum in signums:
                if (handler := signal.getsignal(signum)) is not None:  # else set outside Python
                    after.callback(signal.signal, signum, handler)
        yield


def _is_ours(signum: int) -> bool:
    """Whether to handle a signal: not if it is ignored, nor a SIGTERM with a user's handler."""
    handler: Any = signal.getsignal(signum)
    if signum == signal.SIGINT:
        return handler not in (signal.SIG_IGN, None)
    whose = (getattr(handler, "__module__", None) or "").partition(".")[0]
    # Ray sets a handler that ends the process whenever it starts; a run in a run has its own
    return handler == signal.SIG_DFL or whose in {"rondel", *registry.libraries()}
