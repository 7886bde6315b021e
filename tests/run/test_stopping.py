"""Who obeys a signal that asks a run to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rondel.run.stopping import Terminated, interrupts


@pytest.fixture
def handlers() -> Iterator[None]:
    """Those of before, afterwards."""
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.mark.parametrize(
    ("signum", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_the_first_asks_and_the_second_does_not_wait(
    signum: signal.Signals, error: type[BaseException], handlers: None
) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with interrupts() as stop:
        assert not stop.is_set()
        signal.raise_signal(signum)
        assert stop.is_set()
        assert type(stop.error()) is error
        with pytest.raises(KeyboardInterrupt) as raised:
            signal.raise_signal(signum)
        assert raised.type is error
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def of_ray(*_: Any) -> None:
    """As Ray's: it would end the process."""


of_ray.__module__ = "ray._private.worker"


@pytest.mark.parametrize(
    ("handler", "ours"),
    [(signal.SIG_DFL, True), (signal.SIG_IGN, False), (print, False), (of_ray, True)],
)
def test_a_handler_of_the_users_own_stays(handler: Any, ours: bool, handlers: None) -> None:
    signal.signal(signal.SIGTERM, handler)
    with interrupts() as stop:
        assert (signal.getsignal(signal.SIGTERM) == stop.ask) is ours
    assert signal.getsignal(signal.SIGTERM) == handler


def test_other_threads_leave_signals_alone() -> None:
    seen: list[Any] = []

    def look() -> None:
        with interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
