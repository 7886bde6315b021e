"""Whatever goes wrong in a copy is told at once, by its own name: real processes, real kills."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from execution.backends import stub
from execution.backends.remains import eventually, runs
from rondel.errors import RondelError
from rondel.execution.backends import threads
from rondel.execution.backends.lowering import Kind, Lowering
from rondel.execution.backends.processes import backend as processes
from rondel.execution.backends.processes import launcher
from rondel.execution.backends.processes.backend import Processes
from rondel.execution.backends.protocol import Lost, Unresponsive
from rondel.execution.backends.threads import Threads
from rondel.execution.telemetry import timeouts
from rondel.plan.parser import parse
from rondel.plan.plan import copy_name

pytestmark = pytest.mark.fault

PLAN = parse("env*2 | policy | learner")
Launch = Callable[..., tuple[Any, Any, Any, Any]]


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launch]:
    """Start a backend -> (it, and the copies that drive each other, env, policy, learner)."""
    started: list[Any] = []

    def start(
        kind: Any = Processes, deadline: float = 60.0, first: float = 0.0, **at_start: str
    ) -> Any:
        def factory(task: Any, plan: Any, piece: int, copy: int) -> Any:
            return stub.Stub, (copy_name(plan, piece, copy), at_start)

        monkeypatch.setattr(processes, "worker_factory", factory)
        monkeypatch.setattr(threads, "worker_factory", factory)
        monkeypatch.setattr(launcher, "_HEAVY", launcher._LIGHT)
        for module in (processes, threads):
            monkeypatch.setattr(module, "_GRACE", 0.5)
        monkeypatch.setattr(timeouts, "START", first)
        started.append(kind(deadline))
        (env, _), (policy,), (learner,) = started[-1].launch(None, Lowering(Kind.ROUNDS, PLAN))
        return started[-1], env, policy, learner

    yield start
    for backend in started:
        backend.close()


def drive(backend: Any, env: Any, policy: Any, what: str, request: str = "step") -> None:
    """Let the env do this in a step, or a reset, that the policy waits for."""
    asked = [env.send(stub.BECOME, what), policy.send(stub.DRIVE, request)]
    backend.get(asked[:1])
    backend.get(asked[1:])


BOTH = pytest.mark.parametrize("kind", [Processes, Threads])
FAILURES = {
    "fail": ValueError("the user's own words"),
    "fail_by_cause": LookupError("nothing there"),
    "fail_with_a_note": ValueError("the user's own words"),
    "fail_file": FileNotFoundError(2, "No such file or directory"),
    "leave_politely": SystemExit(3),
    "interrupt": KeyboardInterrupt(),
}


@BOTH
@pytest.mark.parametrize("what", FAILURES)
def test_the_users_exception_comes_out(launch: Launch, kind: Any, what: str) -> None:
    backend, env, policy, _ = launch(kind)
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        drive(backend, env, policy, what)
    error = caught.value
    assert type(error) is type(FAILURES[what])
    assert error.args == FAILURES[what].args
    assert "In env 1 of 2." in error.__notes__
    assert not any("policy" in note for note in error.__notes__)
    if kind is Processes:  # a traceback does not travel, its text does
        assert f"in {what}" in error.__notes__[-1]
    if what == "fail_by_cause":
        assert type(error.__cause__) is ValueError
    if what == "fail_with_a_note":
        assert "and a note" in error.__notes__


def test_what_can_not_be_pickled_comes_out_as_far_as_it_can(launch: Launch) -> None:
    backend, _, _, learner = launch()
    with pytest.raises(stub.Broken, match="spring broke") as caught:
        backend.get([learner.send(stub.DO, "fail_broken")])
    assert caught.value.advice() == "replace spring"
    assert "in fail_broken" in caught.value.__notes__[-1]


@pytest.mark.parametrize(("what", "kind"), [("fail_mute", stub.Mute), ("fail_local", RuntimeError)])
def test_strange_exceptions_come_out(launch: Launch, what: str, kind: Any) -> None:
    backend, _, _, learner = launch()
    with pytest.raises(kind) as caught:
        backend.get([learner.send(stub.DO, what)])
    assert "In learner." in caught.value.__notes__
    assert f"in {what}" in caught.value.__notes__[-1]


@BOTH
def test_a_constructor_that_fails_is_told_of(launch: Launch, kind: Any) -> None:
    with pytest.raises(ValueError, match="own words") as caught:
        launch(kind, **{"env 2 of 2": "fail"})
    assert "In env 2 of 2." in caught.value.__notes__


def test_after_a_failure_there_is_only_that(launch: Launch) -> None:
    backend, env, _, learner = launch()
    there = learner.send(stub.DO, "pid")
    backend.get([there])
    with pytest.raises(ValueError, match="own words"):
        backend.get([env.send(stub.DO, "fail"), learner.send(stub.DO, "pid")])
    for again in (lambda: backend.get([there]), lambda: env.send(stub.DO, "pid")):
        with pytest.raises(ValueError, match="own words"):
            again()


def test_after_the_end_there_is_a_sentence(launch: Launch) -> None:
    backend, _, _, learner = launch()
    there = learner.send(stub.DO, "pid")
    backend.close()
    with pytest.raises(RondelError, match="run is closed"):
        backend.get([there])
    with pytest.raises(RondelError, match="run is closed"):
        learner.send(stub.DO, "pid")


def die_idle(backend: Any, env: Any, policy: Any, learner: Any) -> None:
    os.kill(env.pid, signal.SIGKILL)
    while True:
        backend.get([env.send(stub.DO, "nothing")])


def die_in_a_step(backend: Any, env: Any, policy: Any, learner: Any) -> None:
    drive(backend, env, policy, "kill")


def die_waiting_for_a_step(backend: Any, env: Any, policy: Any, learner: Any) -> None:
    threading.Timer(0.3, os.kill, (policy.pid, signal.SIGKILL)).start()
    drive(backend, env, policy, "sleep")


def die_while_an_env_answers(backend: Any, env: Any, policy: Any, learner: Any) -> None:
    backend.get([env.send(stub.BECOME, f"kill_other {policy.pid}")])
    asked = policy.send(stub.DRIVE)
    assert env.fork_server.status(env.pid, timeout=0.5) is None  # it gets over it
    backend.get([asked])


def die_learning(backend: Any, env: Any, policy: Any, learner: Any) -> None:
    backend.get([env.send(stub.DO, "pid"), learner.send(stub.DO, "kill"), policy.send(stub.DRIVE)])


def crash(backend: Any, env: Any, policy: Any, learner: Any) -> None:
    backend.get([learner.send(stub.DO, "crash")])


def leave(backend: Any, env: Any, policy: Any, learner: Any) -> None:
    drive(backend, env, policy, "leave")


DEATHS = {
    die_idle: (1, "env 1 of 2", "was killed by SIGKILL"),
    die_in_a_step: (1, "env 1 of 2", "was killed by SIGKILL"),
    die_waiting_for_a_step: (2, "policy", "was killed by SIGKILL"),
    die_while_an_env_answers: (2, "policy", "was killed by SIGKILL"),
    die_learning: (3, "learner", "was killed by SIGKILL"),
    crash: (3, "learner", "was killed by SIGSEGV"),
    leave: (1, "env 1 of 2", "exited with 3"),
}


@pytest.mark.parametrize("die", DEATHS)
def test_a_lost_process_is_named(launch: Launch, die: Any) -> None:
    ring = launch()
    place, name, how = DEATHS[die]
    with pytest.raises(Lost) as caught:
        die(*ring)
    assert str(caught.value) == f"{name} (process {ring[place].pid}) {how}."


def test_a_process_lost_at_its_start_is_named(launch: Launch) -> None:
    with pytest.raises(Lost, match=r"^env 2 of 2 \(process \d+\) was killed by SIGKILL\.$"):
        launch(**{"env 2 of 2": "kill"})


@BOTH
@pytest.mark.parametrize(
    ("request_", "said"), [("step", "took no step"), ("reset", "began no episode")]
)
def test_an_env_that_hangs_is_named(launch: Launch, kind: Any, request_: str, said: str) -> None:
    backend, env, policy, _ = launch(kind, deadline=0.5)
    with pytest.raises(
        Unresponsive, match=rf"^env 1 of 2 {said} within 0\.5 s: its environment hangs, or"
    ):
        drive(backend, env, policy, "sleep", request_)
    began = time.monotonic()
    backend.close()
    assert time.monotonic() - began < 10  # closing must not wait for it as well


@BOTH
def test_a_deadline_does_not_count_what_is_done_for_the_first_time(
    launch: Launch, kind: Any
) -> None:
    """That is imported and compiled first; a policy has patience with its environments too."""
    slow = {"policy": "sleep 1", "first": 60.0}
    backend, env, policy, learner = launch(kind, deadline=0.2, **slow)
    drive(backend, env, policy, "sleep 1")
    backend.get([learner.send(stub.DO, "sleep 1")])
    with pytest.raises(
        Unresponsive,
        match=r"^No answer within 0\.4 s from learner.*, asked to `do`\. It hangs, or needs",
    ):
        backend.get([learner.send(stub.DO, "sleep 3")])


def test_one_that_hangs_while_it_starts_is_not_started_again(launch: Launch) -> None:
    said = r"^No answer within 1 s from .*env 2 of 2 \(process \d+\), asked to `make`.*\. It hangs"
    with pytest.raises(Unresponsive, match=said):
        launch(partial(Processes, restarts=20), deadline=0.5, first=0.5, **{"env 2 of 2": "sleep"})


def test_a_stopped_env_is_named(launch: Launch) -> None:
    backend, env, policy, _ = launch(deadline=0.5)
    os.kill(env.pid, signal.SIGSTOP)
    with pytest.raises(Unresponsive, match=r"^env 1 of 2 took no step"):
        backend.get([policy.send(stub.DRIVE)])


def test_a_stopped_process_is_named(launch: Launch) -> None:
    backend, env, _, learner = launch(deadline=0.5)
    os.kill(learner.pid, signal.SIGSTOP)
    with pytest.raises(
        Unresponsive, match=rf" from learner \(process {learner.pid}\), asked to `do`\. "
    ):
        backend.get([env.send(stub.DO, "pid"), learner.send(stub.DO, "pid")])


@BOTH
def test_a_call_that_hangs_is_named(launch: Launch, kind: Any) -> None:
    backend, env, _, learner = launch(kind, deadline=0.5)
    with pytest.raises(Unresponsive, match=r"from learner"):
        backend.get([env.send(stub.DO, "pid"), learner.send(stub.DO, "sleep")])


def test_a_dead_fork_server_stops_nobody(launch: Launch) -> None:
    """Its children go on; who dies then is still missed, and all end with the run."""
    backend, env, policy, learner = launch()
    for fork_server in backend._launcher.fork_servers.values():
        os.kill(fork_server._server.pid, signal.SIGKILL)
    asked = backend.get([x.send(stub.DO, "pid") for x in (env, policy, learner)])
    pids = [int(pid) for pid in asked]
    assert pids == [x.pid for x in (env, policy, learner)]
    os.kill(env.pid, signal.SIGKILL)
    with pytest.raises(Lost, match=rf"env 1 of 2 \(process {env.pid}\) is gone"):
        drive(backend, env, policy, "nothing")
    backend.close()
    assert eventually(lambda: not any(map(runs, pids)))


def test_what_can_not_be_sent_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def factory(*_: Any) -> Any:
        return stub.Stub, (threading.Lock(),)

    monkeypatch.setattr(processes, "worker_factory", factory)
    monkeypatch.setattr(launcher, "_HEAVY", launcher._LIGHT)
    backend = Processes()
    try:
        with pytest.raises(RondelError, match=r"can't be sent.*--on threads"):
            backend.launch(None, Lowering(Kind.ROUNDS, PLAN))
    finally:
        backend.close()
