"""When what copies are, and have made, is held on the driver's own node."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from rondel.execution.backends.protocol import Unresponsive
from rondel.execution.backends.ray.pending_calls import PendingCall, Promise
from rondel.execution.backends.recovery.events import SnapshotsFailed
from rondel.execution.backends.recovery.policy import MOST_BYTES
from rondel.execution.backends.recovery.request_log import LoggedRequest, RequestLog
from rondel.execution.requests import KEEP, PRODUCE
from rondel.plan.parser import parse

ray = pytest.importorskip("ray")
backend = importlib.import_module("rondel.execution.backends.ray.backend")
pytestmark = pytest.mark.fault


class Keeping:
    """A copy that has answered two calls: it has made something, and given its state."""

    index = 0

    def __init__(self) -> None:
        self.open = ()
        self.log = RequestLog(has_snapshots=True, reads=True)
        self.made = self._promise("made")
        self.log.note(LoggedRequest(PRODUCE, (), [self.made]))

    def _promise(self, ref: str) -> Any:
        promise = Promise()
        promise.ref, promise.call = ref, PendingCall(self, LoggedRequest(KEEP, (), None), 0, 0)
        promise.call.end()
        return promise

    def keep(self, most_bytes: int) -> Any:
        self.log.note(LoggedRequest(KEEP, (most_bytes,), []))
        return self._promise("flag"), self._promise("state")


@pytest.fixture
def keeping(monkeypatch: Any) -> Any:
    """A backend whose one copy's state has come -> it, with how long that was waited for."""
    runner, waited = backend.Ray(deadline=60.0, restarts=1), []

    def wait(refs: Any, timeout: float, **_: Any) -> Any:
        waited.append(timeout)
        return refs, []

    monkeypatch.setattr(backend.ray, "wait", wait)
    monkeypatch.setattr(backend.ray, "get", lambda refs, timeout: [True] * len(refs))
    monkeypatch.setattr(backend, "bring_here", lambda promises, patience: None)
    runner.compose(parse("all"), None)
    runner.driver.every = [Keeping()]
    runner.recovery.report(SnapshotsFailed)  # so that it is time to
    return runner, waited


def test_what_is_lost_before_it_was_brought_here_can_still_be_made_again(
    keeping: Any, monkeypatch: Any
) -> None:
    runner, _ = keeping
    (copy,) = runner.driver.copies

    def lose(promises: Any, patience: float) -> None:
        if copy.made in promises:
            raise ray.exceptions.ObjectLostError("", "", "")

    with monkeypatch.context() as patch:
        patch.setattr(backend, "bring_here", lose)
        runner.after_round()
    assert [asked.request for asked in copy.log.answered] == [PRODUCE]
    assert copy.log.base is None
    runner.after_round()
    assert (copy.log.answered, copy.log.base.ref) == ([], "state")


@pytest.mark.parametrize(("nbytes", "patience"), [(0, 0.0), (2 * MOST_BYTES, 60.0)])
def test_states_are_waited_for_if_too_much_is_kept(
    nbytes: int, patience: float, keeping: Any
) -> None:
    runner, waited = keeping
    runner.recovery.state.message_bytes = nbytes
    runner.after_round()
    assert waited == [patience]


def test_states_that_do_not_come_are_not_waited_for_forever(keeping: Any, monkeypatch: Any) -> None:
    runner, _ = keeping
    monkeypatch.setattr(backend.ray, "wait", lambda refs, **_: ([], refs))
    runner.after_round()  # later will do
    with pytest.raises(Unresponsive, match="No result within 60 s"):
        runner.after_round(now=True)


def test_a_client_brings_all_that_is_needed(monkeypatch: Any) -> None:
    """At ray://… it can't ask where something is: that is known inside of the cluster only."""
    losses = importlib.import_module("rondel.execution.backends.ray.pending_calls")
    monkeypatch.setattr(losses.is_client.__globals__["client"].ray, "is_connected", lambda: True)
    monkeypatch.setattr(ray, "get", lambda ref, timeout: f"value of {ref}")
    monkeypatch.setattr(ray, "put", lambda value: f"held: {value}")
    promise = Promise()
    promise.ref = "made"
    losses.bring_here([promise], 1.0)
    assert promise.ref == "held: value of made"
