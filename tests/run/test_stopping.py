"""Who obeys a signal that asks a run to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rondel.run.training.signals import Terminated, end_on_sigterm, stop_on_signals


@pytest.fixture
def handlers() -> Iterator[None]:
    """Those of before, afterwards."""
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


def test_a_second_ctrl_c_does_not_wait() -> None:
    with stop_on_signals() as stop:
        assert not stop.is_set()
        signal.raise_signal(signal.SIGINT)
        assert stop.is_set()
        assert not stop.hurried
        assert type(stop.error()) is KeyboardInterrupt
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.hurried


def test_sigterm_may_come_twice(handlers: None) -> None:
    """`timeout` sends it to its child, and then to the whole group."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with stop_on_signals() as stop:
        for _ in range(2):
            signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        assert not stop.hurried
        assert isinstance(stop.error(), Terminated)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_where_all_is_saved_sigterm_ends_at_once(handlers: None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with pytest.raises(Terminated) as error, end_on_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert error.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_handler_that_came_later_can_be_taken_over(handlers: None) -> None:
    """As Ray's, which it sets whenever it starts."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with stop_on_signals() as stop:
        signal.signal(signal.SIGTERM, of_ray)
        stop.listen()
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def of_ray(*_: Any) -> None:
    """As Ray's: it would end the process."""


of_ray.__module__ = "ray._private.worker"


@pytest.mark.parametrize(
    ("handler", "ours"),
    [
        (signal.SIG_DFL, True),
        (signal.SIG_IGN, False),
        (print, False),
        ([].append, False),  # of no module
        (of_ray, True),
    ],
)
def test_a_handler_of_the_users_own_stays(handler: Any, ours: bool, handlers: None) -> None:
    signal.signal(signal.SIGTERM, handler)
    with stop_on_signals() as stop:
        now: Any = signal.getsignal(signal.SIGTERM)
        assert (getattr(now, "__self__", None) is stop) is ours
    assert signal.getsignal(signal.SIGTERM) == handler


def test_other_threads_leave_signals_alone() -> None:
    seen: list[Any] = []

    def look() -> None:
        with stop_on_signals():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
