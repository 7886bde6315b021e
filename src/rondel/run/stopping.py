"""Ctrl-C and SIGTERM ask a run to stop after its round, so that it can save what it has."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


class Terminated(KeyboardInterrupt, SystemExit):
    """SIGTERM ended it, as `kill`, Slurm and Kubernetes send it: a Ctrl-C with a status of its own.

    Where nobody catches it, it ends the process without a traceback, as it would have ended then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.code = 128 + signal.SIGTERM


class Stop(threading.Event):
    """Set when a run is to stop after its round."""

    def __init__(self) -> None:
        super().__init__()
        self._by: type[KeyboardInterrupt] = KeyboardInterrupt

    def ask(self, signum: int, *_: Any) -> None:
        """A signal's handler; a second one does not wait for the round's end."""
        self._by = Terminated if signum == signal.SIGTERM else KeyboardInterrupt
        if self.is_set():
            raise self._by
        self.set()

    def error(self) -> KeyboardInterrupt:
        """What to raise when all is saved."""
        return self._by()


@contextmanager
def interrupts() -> Iterator[Stop]:
    """Within it Ctrl-C and SIGTERM ask for a stop, where they are for this thread to obey."""
    stop = Stop()
    with ExitStack() as before:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                if _is_ours(signum):
                    before.callback(signal.signal, signum, signal.signal(signum, stop.ask))
        yield stop


def _is_ours(signum: int) -> bool:
    """Not where it is ignored, as in a process of another run, or the user's SIGTERM handler is."""
    handler: Any = signal.getsignal(signum)
    if signum == signal.SIGINT:
        return handler != signal.SIG_IGN
    of_ray = getattr(handler, "__module__", "").partition(".")[0] == "ray"  # it ends the process
    return handler == signal.SIG_DFL or of_ray
