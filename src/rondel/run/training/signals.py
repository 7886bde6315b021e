"""Ctrl-C and SIGTERM ask a run to stop after its round, so that it can save what it has."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from rondel.execution.backends import registry


class Terminated(KeyboardInterrupt, SystemExit):
    """SIGTERM ended it, as `kill`, Slurm and Kubernetes send it: a Ctrl-C with a status of its own.

    Where nobody catches it, the process ends with that status and without a traceback.
    """

    def __init__(self) -> None:
        super().__init__()
        self.code = 128 + signal.SIGTERM


class StopRequest:
    """Whether a run is to stop after its round; no Event, whose lock a handler may not wait for."""

    def __init__(self) -> None:
        self._asked = False
        self._by: type[KeyboardInterrupt] = KeyboardInterrupt
        self.hurried = False  # somebody did not wait for the round's end

    def is_set(self) -> bool:
        return self._asked

    def set(self) -> None:
        self._asked = True

    def error(self) -> KeyboardInterrupt:
        """What to raise when all is saved."""
        return self._by()

    def listen(self) -> None:
        """Obey Ctrl-C and SIGTERM, where they are for this thread to obey."""
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
    """Within it Ctrl-C and SIGTERM ask for a stop."""
    stop = StopRequest()
    with _restored(signal.SIGINT, signal.SIGTERM):
        stop.listen()
        yield stop


@contextmanager
def end_on_sigterm() -> Iterator[None]:
    """Within it SIGTERM ends what runs at once, as Ctrl-C does: all is saved already."""

    def end(*_: Any) -> None:
        raise Terminated

    with _restored(signal.SIGTERM):
        if threading.current_thread() is threading.main_thread() and _is_ours(signal.SIGTERM):
            signal.signal(signal.SIGTERM, end)
        yield


@contextmanager
def _restored(*signums: int) -> Iterator[None]:
    """The handlers of before, afterwards."""
    with ExitStack() as after:
        if threading.current_thread() is threading.main_thread():
            for signum in signums:
                if (handler := signal.getsignal(signum)) is not None:  # it can't be put back
                    after.callback(signal.signal, signum, handler)
        yield


def _is_ours(signum: int) -> bool:
    """Whether to obey it: not where it is ignored, nor a SIGTERM that the user handles."""
    handler: Any = signal.getsignal(signum)
    if signum == signal.SIGINT:
        return handler not in (signal.SIG_IGN, None)
    whose = (getattr(handler, "__module__", None) or "").partition(".")[0]
    # Ray sets one whenever it starts, which ends the process; a run within a run has its own
    return handler == signal.SIG_DFL or whose in {"rondel", *registry.libraries()}
