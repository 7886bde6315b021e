"""Actors that die, and nodes: what was lost with them is made again."""

from __future__ import annotations

import importlib
import os
import pickle
import signal
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from execution.backends import same, tiny
from execution.backends.test_recovery import (
    PLANS,
    Once,
    crash_always,
    exit_at_once,
    hang,
    kill,
    stop,
)
from execution.test_equality import assert_equal, run, task
from rondel.execution.backends.protocol import Lost, Unresponsive
from rondel.execution.backends.ray.worker import Arrived
from rondel.execution.hostenv.crash_record import Remains
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.sync_loop import Limits, run_rounds
from rondel.execution.telemetry.timeouts import Timeouts
from rondel.plan.parser import parse
from rondel.types import HostWorld

ray = pytest.importorskip("ray")
backend = importlib.import_module("rondel.execution.backends.ray.backend")
cluster_utils = importlib.import_module("ray.cluster_utils")
strategies = importlib.import_module("ray.util.scheduling_strategies")
pytestmark = [
    pytest.mark.fault,
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
]


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Nodes that can be lost, on this machine."""
    small = {"max_direct_call_object_size": 100}  # all but the least lies on the nodes
    args = {"num_cpus": 1, "resources": {"home": 1}, "_system_config": small}
    made = cluster_utils.Cluster(initialize_head=True, head_node_args=args)
    backend.join(made.address)
    yield made
    ray.shutdown()
    made.shutdown()


def disturbed(runner: Any, name: str, plan: str, disturb: Any, lag: int = 0) -> Any:
    """A short run that is disturbed after its third round."""
    ring = Ring(task(name, same.ENV), parse(plan, lag), runner)
    with closing(ring):
        reports = run_rounds(ring, Limits(900))
        next(reports)
        runner.settled(now=True)  # some have a state that was kept, and messages since
        next(reports)
        disturb(runner)
        result = run(ring, 900)
        assert runner._restarted
        assert (runner.restarts().seconds > 0) == (runner.restarts().times > 0)
    return result


def assert_undisturbed(got: Any, name: str, plan: str, lag: int = 0) -> None:
    wanted = same.inline(name, plan, lag, same.ENV)
    assert_equal(got | {"returns": wanted["returns"]}, wanted)  # it has only those after the fault


def kill_all(runner: Any) -> None:
    for copy in runner._copies:
        os.kill(copy.process, signal.SIGKILL)


def kill_one(runner: Any) -> None:
    os.kill(runner._copies[0].process, signal.SIGKILL)


@pytest.mark.parametrize(
    ("name", "plan", "disturb"),
    [
        pytest.param("toy", "actor*2 | learner", kill_all, marks=pytest.mark.long),
        pytest.param("toy", "env*2 | policy+learner", kill_one, marks=pytest.mark.long),
        pytest.param("dqn", "actor | memory | gradient+update", kill_all, marks=pytest.mark.long),
        pytest.param("ppo", "actor*2 | learner", kill_one, marks=pytest.mark.long),
    ],
)
def test_killed_actors(name: str, plan: str, disturb: Any, cluster: Any) -> None:
    cluster.add_node(num_cpus=3)
    got = disturbed(backend.Ray(restarts=20), name, plan, disturb)
    assert_undisturbed(got, name, plan)


@pytest.mark.parametrize("told", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_node_is_lost_and_another_joins(told: bool, cluster: Any) -> None:
    """All that its actors have made and nobody has taken yet is lost with it.

    Ray is told of it, or has to find out, which takes some 15 s: till then nobody is dead, but
    can't be reached.
    """
    node = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()

    def lose_the_node(runner: Any) -> None:
        assert {copy.node for copy in runner._copies} == {n["NodeID"] for n in ray.nodes()}
        cluster.remove_node(node, allow_graceful=told)
        cluster.add_node(num_cpus=2)

    got = disturbed(backend.Ray(restarts=20), "toy", "actor*2 | learner", lose_the_node)
    assert_undisturbed(got, "toy", "actor*2 | learner")


@pytest.mark.long
def test_a_snapshot_is_lost_before_it_was_fetched(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()

    def lose_the_answer(runner: Any) -> None:
        away = next(copy for copy in runner._copies if copy.node == node.node_id)
        before = runner.get([away.snapshot()])
        asked = away.snapshot()
        assert runner.wait([asked]) == [0]
        cluster.remove_node(node)
        cluster.add_node(num_cpus=2)
        jax.tree.map(np.testing.assert_array_equal, runner.get([asked]), before)

    got = disturbed(backend.Ray(restarts=20), "toy", "actor*2 | learner", lose_the_answer)
    assert_undisturbed(got, "toy", "actor*2 | learner")


@pytest.mark.parametrize("kept", [False, pytest.param(True, marks=pytest.mark.long)])
def test_what_copies_have_made_is_lost_and_nobody_dies(kept: bool, cluster: Any) -> None:
    """A node goes on which nobody is any more, with what was made there: weights, and rounds.

    It can be made again, or was brought away when states were kept last.
    """
    node = cluster.add_node(num_cpus=3)
    cluster.wait_for_nodes()
    plan = "actor*2 | learner"

    def lose_what_was_made(runner: Any) -> None:
        assert {copy.node for copy in runner._copies} == {node.node_id}
        other = cluster.add_node(num_cpus=6)  # the room that was reserved moves there too
        cluster.wait_for_nodes()
        for copy in runner._copies:
            there = strategies.NodeAffinitySchedulingStrategy(other.node_id, soft=False)
            copy.options["scheduling_strategy"] = there
        if kept:
            runner.settled(now=True)
        runner._restart(runner._copies, [])
        assert {copy.node for copy in runner._copies} == {other.node_id}
        cluster.remove_node(node)

    runner = backend.Ray(resources=[{"cpu": 1}] * 2, restarts=20)
    got = disturbed(runner, "toy", plan, lose_what_was_made, lag=2)
    assert_undisturbed(got, "toy", plan, lag=2)


@pytest.mark.long
def test_without_restarts_a_death_ends_the_run(cluster: Any) -> None:
    cluster.add_node(num_cpus=2)
    with pytest.raises(Lost, match=r"actor 1 of 2 \(process \d+ on .*\) died"):
        disturbed(backend.Ray(), "toy", "actor*2 | learner", kill_one)


# environments that do something in their steps, in the least task there is


def exit_always(steps: int) -> None:
    if steps == 1:
        os._exit(3)


@pytest.mark.parametrize(
    ("plan", "do", "how"),
    [
        (PLANS[0], crash_always, "crashed"),
        (PLANS[0], exit_always, "exited with 3"),
        pytest.param(PLANS[1], crash_always, "crashed", marks=pytest.mark.long),
        pytest.param(PLANS[1], exit_always, "exited with 3", marks=pytest.mark.long),
    ],
)
def test_an_environment_that_always_fails_at_one_action(plan: str, do: Any, how: str) -> None:
    said = rf"\(process \d+ on .*\) {how} in step\(\[0.*\]\), for the third time in a row"
    with pytest.raises(Lost, match=said):
        tiny.run(backend.Ray(restarts=20), plan, tiny.task(do))


@pytest.mark.long
@pytest.mark.parametrize("plan", PLANS)
def test_an_environment_that_always_fails_in_its_reset(plan: str) -> None:
    """It never got any further, so there is no fourth actor to tell of the third."""
    said = r"further\. The time before, it exited with 3 in reset\(seed=\[\d+.*\]\)\. What was"
    with pytest.raises(Lost, match=said):
        tiny.run(backend.Ray(restarts=20), plan, tiny.task(exit_at_once))


def kill_four_times(mark: Path, steps: int) -> None:
    done = len(list(mark.parent.glob(f"{mark.name}*")))
    if steps == 1 and done < 4:
        mark.with_name(f"{mark.name}{done}").touch()
        kill()


@pytest.mark.long
def test_one_that_is_killed_at_one_action_is_no_environment_that_fails(tmp_path: Path) -> None:
    """Four times in a row; three would be enough for an end by itself."""
    runner = backend.Ray(restarts=20)
    tiny.run(runner, PLANS[0], tiny.task(partial(kill_four_times, tmp_path / "done")))
    assert runner._restarted == 4


@pytest.mark.long
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("do", [hang, stop])
def test_an_environment_that_fails_once(plan: str, do: Any, tmp_path: Path) -> None:
    runner = backend.Ray(deadline=5.0, restarts=20)
    tiny.run(runner, plan, tiny.task(Once(tmp_path / "done", do)))
    assert (tmp_path / "done").exists()
    assert runner._restarted == 1


def make_or(do: Any, mark: Path | None, lanes: int, first_lane: int) -> Any:
    """Environments; where they are first made, or with no mark to be left always, it is done."""
    if first_lane == 0 and not (mark and mark.exists()):
        if mark:
            mark.touch()
        do()
    return tiny.Lanes(tiny.nothing, lanes, first_lane)


def test_a_copy_that_is_killed_while_it_starts(tmp_path: Path) -> None:
    runner, mark = backend.Ray(restarts=20), tmp_path / "done"
    world = HostWorld(tiny.SPEC, partial(make_or, kill, mark))
    tiny.run(runner, "actor*2 | learner", tiny.task()._replace(env=world))
    assert mark.exists()


@pytest.mark.long
def test_a_copy_that_never_starts_is_soon_given_up() -> None:
    world = HostWorld(tiny.SPEC, partial(make_or, kill, None))
    with pytest.raises(Lost, match=r"^actor 1 of 2 died.*, and was started again 2 times without"):
        tiny.run(backend.Ray(restarts=20), "actor*2 | learner", tiny.task()._replace(env=world))


@pytest.mark.long
def test_one_that_hangs_while_it_starts_is_said_to_hang_once(caplog: Any) -> None:
    world = HostWorld(tiny.SPEC, partial(make_or, hang, None))
    runner = backend.Ray(restarts=20)
    runner._patience = Timeouts(20.0, 20.0)
    with pytest.raises(
        Unresponsive, match=r"^Nothing was heard for 20 s\. Late: actor 1 of 2 with `make`"
    ):
        tiny.run(runner, "actor*2 | learner", tiny.task()._replace(env=world))
    assert caplog.messages == []


def test_one_that_is_late_to_be_there_again_is_no_dead_one(monkeypatch: Any) -> None:
    """It did something before, so another start may do."""
    recovery = importlib.import_module("rondel.execution.backends.ray.recovery")
    starts = iter([Unresponsive("Nothing was heard for 60 s."), None])
    copies = [backend.RayProxy(None, (0, i), f"actor {i + 1} of 2") for i in range(2)]

    class Starting(recovery.Recovery):  # type: ignore[misc]
        def _start(self, copies: Any) -> None:
            copies[1].open.append(None)
            if error := next(starts):
                raise error

    monkeypatch.setattr(ray, "nodes", lambda: [])
    runner = Starting(1.0, 20)
    runner._plan, runner._copies = parse("actor*2 | learner"), copies
    copies[1].journal.began = True
    runner._start_until_all_are_there(copies)
    (death,) = copies[1].journal.deaths
    assert death.how == "was not there within 60 s"


def test_a_crash_is_told_from_a_start_that_failed_after_it(monkeypatch: Any) -> None:
    recovery = importlib.import_module("rondel.execution.backends.ray.recovery")
    actors = iter("ab")
    copy = backend.RayProxy(None, (0, 0), "actor 1 of 2")

    def be_in_another() -> None:
        name = next(actors)
        copy.be(SimpleNamespace(_actor_id=SimpleNamespace(hex=lambda: name)))

    class Starting(recovery.Recovery):  # type: ignore[misc]
        def _start(self, copies: Any) -> None:
            """It fails once; then an actor is there, and finds what the first one has left."""
            if copy.id == "a":
                be_in_another()
                raise Lost("actor 1 of 2 died: it was killed.")
            assert copy.last == "a"
            copy.arrive(Arrived(2, "", "", Remains("step(3)", ended="crashed")))

    monkeypatch.setattr(ray, "kill", lambda actor: None)
    monkeypatch.setattr(ray, "nodes", lambda: [])
    be_in_another()
    copy.arrive(Arrived(1, "", "", Remains()))
    copy.journal.began = copy.journal.progress = True
    runner = Starting(1.0, 20)
    runner._plan, runner._redo, runner._copies = parse("actor*2 | learner"), None, [copy]
    runner._revive({copy: "died"}, [])
    crash, start = copy.journal.deaths
    assert (crash.how, crash.killed, crash.action) == ("crashed", False, "step(3)")
    assert (start.how, start.killed, start.action) == ("died: it was killed", True, "")


def test_without_restarts_who_is_late_to_start_is_not_said_to_have_died(monkeypatch: Any) -> None:
    recovery = importlib.import_module("rondel.execution.backends.ray.recovery")
    said = "Nothing was heard for 1 s. Late: actor 2 of 2 with `make`."

    class Starting(recovery.Recovery):  # type: ignore[misc]
        def _start(self, copies: Any) -> None:
            raise Unresponsive(said)

    monkeypatch.setattr(ray, "nodes", lambda: [])
    copies = [backend.RayProxy(None, (0, i), f"actor {i + 1} of 2") for i in range(2)]
    runner = Starting(1.0, 0)
    runner._plan, runner._copies = parse("actor*2 | learner"), copies
    with pytest.raises(Unresponsive, match=f"^{said}$"):
        runner._start_until_all_are_there(copies)


def test_what_is_slow_to_come_is_not_lost(monkeypatch: Any) -> None:
    losses = importlib.import_module("rondel.execution.backends.ray.lost_objects")

    def wait(refs: Any, **_: Any) -> Any:
        return [ref for ref in refs if ref != "slow"], ["slow"]

    def get(ref: str, timeout: float) -> str:
        if ref == "lost":
            raise ray.exceptions.ObjectLostError("", "", "")
        if ref in ("slow", "sent away"):
            raise ray.exceptions.GetTimeoutError
        return ref

    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray, "get", get)
    assert losses.lost_of(["there", "slow", "lost", "sent away", "lost"], 1.0) == {"lost"}


def test_calls_are_asked_again_from_the_first_that_did_not_come(monkeypatch: Any) -> None:
    # Calls 5 to 9 failed and the driver has not heard of it; of call 10 it has: not its turn.
    recovery = importlib.import_module("rondel.execution.backends.ray.recovery")
    actor = importlib.import_module("rondel.execution.backends.ray.worker")
    copy = backend.RayProxy(None, (0, 0), "actor 1 of 2")
    for number in range(5, 11):
        call = recovery.PendingCall(copy, recovery.LoggedRequest("produce", (), []), number, number)
        call.done = number
        copy.open.append(call)
    error = ray.exceptions.RayTaskError("do", "", actor.OutOfTurn("actor 1 of 2", 10, 5))
    monkeypatch.setattr(recovery, "_over", lambda dones: {10} & set(dones))
    monkeypatch.setattr(recovery, "outcome_of", lambda done: error)
    first = recovery.Recovery(1.0, 1)._first_unanswered(copy.open[-1], error)
    assert first.number == 5
    again = pickle.loads(pickle.dumps(error.cause))
    assert (again.at, str(again)) == (5, "actor 1 of 2 was asked for 10, and is at 5")


def test_ray_may_take_its_time_to_see_who_is_dead(monkeypatch: Any) -> None:
    """A lost node's actors can't be reached for some 15 s before anybody is said to have died."""
    recovery = importlib.import_module("rondel.execution.backends.ray.recovery")
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(recovery.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(recovery.time, "sleep", lambda s: setattr(clock, "now", clock.now + s))
    monkeypatch.setattr(recovery, "find_lost", lambda *_: [])

    class Patient(recovery.Recovery):  # type: ignore[misc]
        def _find_dead(self) -> list[Any]:
            return []

    patient = Patient(deadline=5.0, restarts=20)
    unreachable = {None: ray.exceptions.ActorUnavailableError("can't be reached", None)}
    while clock.now < 50:
        patient._recover(unreachable)
    clock.now = 70.0
    with pytest.raises(Lost, match=r"again and again, although nobody died.*can't be reached"):
        patient._recover(unreachable)
