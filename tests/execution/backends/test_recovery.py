"""Copies that die or hang are started again, and the numbers are those of an undisturbed run."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from execution.backends import same, tiny
from execution.backends.remains import eventually, files, runs
from execution.test_equality import assert_equal, run, task
from rondel.execution.backends.processes.backend import Processes
from rondel.execution.backends.protocol import Lost
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.sync_loop import Limits, run_rounds
from rondel.plan.parser import parse
from rondel.plan.plan import failure_units

pytestmark = pytest.mark.fault
STEPS = 1_500  # rounds enough to kill each copy of the longest plan in one of its own


def strike(backend: Any, which: int, after: float) -> threading.Thread:
    """Kill a copy's process after so many seconds, or as soon as it has one then."""

    def kill() -> None:
        time.sleep(after)
        while True:
            with suppress(ProcessLookupError, IndexError):
                pid = backend._copies[which].pid
                if pid and runs(pid):
                    os.kill(pid, signal.SIGKILL)
                    return
            time.sleep(0.001)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def disturbed(backend: Any, name: str, plan: str, lag: int, env: Any) -> Any:
    """A short run in which every copy is killed once, at some moment of a round."""
    ring = Ring(task(name, env), parse(plan, lag), backend)
    with closing(ring):
        reports = run_rounds(ring, Limits(STEPS))
        next(reports)
        backend.after_round(now=True)  # some have a state that was kept, and messages since
        next(reports)
        pids = [copy.pid for copy in backend._copies]
        for i in range(len(pids)):  # while it runs
            struck = strike(backend, i, 0.002 * i)
            next(reports)
            struck.join()
        result = run(ring, STEPS)
        assert all(copy.pid != pid for copy, pid in zip(backend._copies, pids, strict=True))
        deaths = sum(len(copy.deaths) for copy in backend.state.copies)
        assert deaths == backend.state.restarted >= len(failure_units(ring.plan))
        assert backend.restarts().times == deaths
    return result


CASES = (
    ("toy", "actor*2 | learner", 2),
    ("toy", "env*2 | policy+learner", 0),
    *(
        pytest.param(*case, marks=pytest.mark.long)
        for case in (
            ("dqn", "actor*2 | memory*2 | gradient+update", 0),
            ("dqn", "env*4 | policy+learner", 0),
            ("toy", "all", 0),
            ("toy", "actor+memory+gradient*2 | update", 0),
            ("ppo", "all*2", 0),
            ("toy", "env*2 | policy*2 | memory | gradient | update", 1),
        )
    ),
)


@pytest.mark.parametrize(("name", "plan", "lag"), CASES)
def test_a_run_whose_every_copy_was_killed_equals_another(name: str, plan: str, lag: int) -> None:
    got = disturbed(Processes(restarts=20), name, plan, lag, same.ENV)
    wanted = same.inline(name, plan, lag, same.ENV, STEPS)
    got.pop("returns")  # of the rounds before the kills too, in the other
    assert_equal(got | {"returns": wanted["returns"]}, wanted)


def test_host_environments_begin_new_episodes_and_nothing_is_counted_twice() -> None:
    """The learner counts what it is told of; the driver counts what it reports."""
    backend = Processes(restarts=20)
    ring = Ring(task("toy", same.gymnasium_cartpole()), parse("actor*2 | learner"), backend)
    with closing(ring):
        reports = run_rounds(ring, Limits(900))
        seen = [next(reports), next(reports)]
        for which in range(3):
            strike(backend, which, 0.02)
            seen.append(next(reports))
        seen += reports
        assert [report.round for report in seen] == list(range(len(seen)))
        assert float(ring.learner().seen) == ring.steps == seen[-1].steps
        assert {copy.deaths[0].how for copy in backend.state.copies if copy.deaths} == {
            "was killed by SIGKILL"
        }


def test_a_copy_that_is_killed_while_it_starts() -> None:
    """Whoever waits for it to be there is told once another one is."""
    backend = Processes(restarts=20)
    for which in range(3):
        strike(backend, which, 0.3)
    assert tiny.run(backend, "actor*2 | learner", tiny.task()) == 1.0


# environments that do something in their steps, in the least task there is


def once(mark: Path, do: Any, steps: int) -> None:
    """Do it in the third step, if nobody has before."""
    if steps == 3 and not mark.exists():
        mark.touch()
        do()


def crash() -> None:
    ctypes.string_at(0)


def crash_always(steps: int) -> None:
    if steps == 1:
        crash()


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def hang() -> None:
    time.sleep(3600)


class Once:
    """A callable that can be sent."""

    def __init__(self, mark: Path, do: Any) -> None:
        self.mark, self.do = mark, do

    def __call__(self, steps: int) -> None:
        once(self.mark, self.do, steps)


PLANS = ("actor*2 | learner", "env*2 | policy | learner")


@pytest.mark.parametrize(
    ("plan", "do"),
    [
        (PLANS[1], kill),
        (PLANS[0], hang),
        (PLANS[0], stop),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in ((PLANS[0], kill), (PLANS[1], hang), (PLANS[1], stop))
        ),
    ],
)
def test_an_environment_that_fails_once(
    plan: str, do: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rondel.execution.telemetry.timeouts.STOPPED", 0.5)
    backend = Processes(deadline=3.0, restarts=20)
    tiny.run(backend, plan, tiny.task(Once(tmp_path / "done", do)))
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("plan", [PLANS[0], pytest.param(PLANS[1], marks=pytest.mark.long)])
def test_an_environment_that_always_fails_at_one_action(plan: str) -> None:
    said = r"\(process \d+\) was killed by SIGSEGV in step\(\[0.*\]\), for the third time in a row"
    with pytest.raises(Lost, match=said):
        tiny.run(Processes(restarts=20), plan, tiny.task(crash_always))


def exit_at_once(steps: int) -> None:
    if steps == 0:
        os._exit(3)


@pytest.mark.parametrize("plan", [PLANS[0], pytest.param(PLANS[1], marks=pytest.mark.long)])
def test_an_environment_that_always_fails_in_its_reset(plan: str) -> None:
    said = r"exited with 3 in reset\(seed=\[\d+.*\]\), for the third time in a row\. Fix"
    with pytest.raises(Lost, match=said):
        tiny.run(Processes(restarts=20), plan, tiny.task(exit_at_once))


@pytest.mark.long
def test_a_copy_that_dies_before_it_ever_did_anything_is_soon_given_up() -> None:
    with pytest.raises(Lost, match="was killed by SIGKILL, and made no progress in 2 restarts"):
        tiny.run(Processes(restarts=20), "env*2 | policy | learner", tiny.task(kill_at_once))


def kill_at_once(steps: int) -> None:
    if steps == 0:
        kill()


def tiny_ring(backend: Processes) -> Ring:
    return Ring(tiny.task(), parse("actor*2 | learner"), backend)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_who_starts_processes_may_be_killed_or_stopped_too(
    how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rondel.execution.telemetry.timeouts.STOPPED", 0.5)
    backend = Processes(restarts=20)
    with closing(tiny_ring(backend)) as ring:
        reports = run_rounds(ring, Limits(10**9))
        next(reports)
        pids = [copy.pid for copy in backend._copies]
        servers = [
            fork_server._server.pid for fork_server in backend._launcher.fork_servers.values()
        ]
        for pid in servers:
            os.kill(pid, how)
        os.kill(pids[0], signal.SIGKILL)
        for _ in range(5):
            next(reports)
        assert backend._copies[0].pid != pids[0]
        pids += [*servers, *(copy.pid for copy in backend._copies)]
    assert eventually(lambda: not any(map(runs, pids)))


def test_those_who_started_processes_and_were_killed_leave_no_descriptors() -> None:
    """One that was killed is held for as long as someone lives whom it has started."""
    backend = Processes(restarts=20)
    with closing(tiny_ring(backend)) as ring:
        reports = run_rounds(ring, Limits(10**9))
        next(reports)
        before = len(files())
        held = []
        for victims in ([0], [0], [0], [0, 1, 2]):
            assert backend._launcher is not None
            for fork_server in backend._launcher.fork_servers.values():
                os.kill(fork_server._server.pid, signal.SIGKILL)
            old = {i: backend._copies[i].pid for i in victims}
            for pid in old.values():
                os.kill(pid, signal.SIGKILL)
            while any(backend._copies[i].pid == pid for i, pid in old.items()):
                next(reports)
            held.append(len(files()))
        assert held == [before + 2] * 3 + [before]


def test_messages_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rondel.execution.backends.recovery.policy._OFTEN", 3600.0)
    backend = Processes(restarts=20)
    with closing(tiny_ring(backend)) as ring:
        reports = run_rounds(ring, Limits(10**9))
        most = 0
        monkeypatch.setattr("rondel.execution.backends.recovery.policy.MOST_BYTES", 4096)
        for _ in range(200):
            next(reports)
            most = max(most, max(len(copy.log.answered) for copy in backend._copies))
        assert 0 < most < 300  # of about 800 requests


def test_a_run_waits_where_messages_outrun_the_keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rondel.execution.backends.recovery.policy._OFTEN", 3600.0)
    backend = Processes(restarts=20)
    with closing(tiny_ring(backend)) as ring:
        reports = run_rounds(ring, Limits(10**9))
        next(reports)
        made = backend.state.message_bytes  # in a round
        monkeypatch.setattr("rondel.execution.backends.recovery.policy.MOST_BYTES", made // 4)
        for _ in range(20):
            next(reports)
            assert backend.recovery.snapshots == []
            assert backend.state.message_bytes <= made


def test_a_state_that_is_too_large_is_not_kept_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rondel.execution.backends.recovery.recovery._MOST_STATE", 1)
    backend = Processes(restarts=20)
    with closing(tiny_ring(backend)) as ring:
        reports = run_rounds(ring, Limits(10**9))
        next(reports)
        backend.after_round(now=True)
        os.kill(backend._copies[2].pid, signal.SIGKILL)
        with pytest.raises(Lost, match=r"so no snapshot was kept\. Resume from the last check"):
            list(islice(reports, 50))


@pytest.mark.parametrize(
    ("plan", "together"),
    [
        ("actor*2 | learner", [[(0, 0)], [(0, 1)], [(1, 0)]]),
        (
            "env*4 | policy*2 | learner",
            [[(0, 0), (0, 1), (1, 0)], [(0, 2), (0, 3), (1, 1)], [(2, 0)]],
        ),
        ("env | policy*2 | learner", [[(0, 0), (1, 0), (1, 1)], [(2, 0)]]),
        ("env*2 | policy+learner", [[(0, 0), (0, 1), (1, 0)]]),
    ],
)
def test_who_lives_and_dies_together(plan: str, together: Any) -> None:
    assert failure_units(parse(plan)) == together
