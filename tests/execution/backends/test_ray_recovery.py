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
from rondel.execution.backends.recovery.events import End, Moved
from rondel.execution.backends.recovery.request_log import LoggedRequest
from rondel.execution.hostenv.crash_record import Remains
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.sync_loop import Limits, run_rounds
from rondel.execution.requests import PRODUCE
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
        runner.after_round(now=True)  # some have a state that was kept, and messages since
        next(reports)
        disturb(runner)
        result = run(ring, 900)
        assert runner.recovery.state.restarted
        assert (runner.restarts().seconds > 0) == (runner.restarts().times > 0)
    return result


def assert_undisturbed(got: Any, name: str, plan: str, lag: int = 0) -> None:
    wanted = same.inline(name, plan, lag, same.ENV)
    assert_equal(got | {"returns": wanted["returns"]}, wanted)  # it has only those after the fault


def kill_all(runner: Any) -> None:
    for copy in runner.driver.copies:
        os.kill(copy.process, signal.SIGKILL)


def kill_one(runner: Any) -> None:
    os.kill(runner.driver.copies[0].process, signal.SIGKILL)


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
        assert {copy.node for copy in runner.driver.copies} == {n["NodeID"] for n in ray.nodes()}
        cluster.remove_node(node, allow_graceful=told)
        cluster.add_node(num_cpus=2)

    got = disturbed(backend.Ray(restarts=20), "toy", "actor*2 | learner", lose_the_node)
    assert_undisturbed(got, "toy", "actor*2 | learner")


@pytest.mark.long
def test_a_snapshot_is_lost_before_it_was_fetched(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()

    def lose_the_answer(runner: Any) -> None:
        away = next(copy for copy in runner.driver.copies if copy.node == node.node_id)
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
        assert {copy.node for copy in runner.driver.copies} == {node.node_id}
        other = cluster.add_node(num_cpus=6)  # the room that was reserved moves there too
        cluster.wait_for_nodes()
        for copy in runner.driver.copies:
            there = strategies.NodeAffinitySchedulingStrategy(other.node_id, soft=False)
            copy.options["scheduling_strategy"] = there
        if kept:
            runner.after_round(now=True)
        runner.recovery.report(Moved, tuple(copy.index for copy in runner.driver.copies))
        assert {copy.node for copy in runner.driver.copies} == {other.node_id}
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
    said = r"restarts\. Before that, it exited with 3 in reset\(seed=\[\d+.*\]\)\. Resume"
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
    assert runner.recovery.state.restarted == 4


@pytest.mark.long
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("do", [hang, stop])
def test_an_environment_that_fails_once(plan: str, do: Any, tmp_path: Path) -> None:
    runner = backend.Ray(deadline=5.0, restarts=20)
    tiny.run(runner, plan, tiny.task(Once(tmp_path / "done", do)))
    assert (tmp_path / "done").exists()
    assert runner.recovery.state.restarted == 1


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
    with pytest.raises(Lost, match=r"^actor 1 of 2 died.*, and made no progress in 2 restarts"):
        tiny.run(backend.Ray(restarts=20), "actor*2 | learner", tiny.task()._replace(env=world))


@pytest.mark.long
def test_one_that_hangs_while_it_starts_is_said_to_hang_once(caplog: Any) -> None:
    world = HostWorld(tiny.SPEC, partial(make_or, hang, None))
    runner = backend.Ray(restarts=20)
    runner._timeouts = Timeouts(20.0, 20.0)
    with pytest.raises(
        Unresponsive, match=r"^No answer within 20 s from actor 1 of 2, asked to `make`"
    ):
        tiny.run(runner, "actor*2 | learner", tiny.task()._replace(env=world))
    assert caplog.messages == []


@pytest.fixture
def starting(monkeypatch: Any) -> Any:
    """Make a backend whose copies start as a function says -> (it, its copies)."""

    def make(plan: str, restarts: int, start_once: Any) -> Any:
        runner = backend.Ray(deadline=1.0, restarts=restarts)
        runner.compose(parse(plan), None)
        places = [(p, i) for p, piece in enumerate(parse(plan).pieces) for i in range(piece.copies)]
        runner.driver.every = [
            backend.RayProxy(runner.driver, index, place, f"copy {index}")
            for index, place in enumerate(places)
        ]
        monkeypatch.setattr(runner.driver, "_start_once", start_once)
        return runner, runner.driver.every

    monkeypatch.setattr(ray, "nodes", lambda: [])
    monkeypatch.setattr(ray, "kill", lambda actor: None)
    return make


def test_one_that_is_late_to_be_there_again_is_no_dead_one(starting: Any) -> None:
    """It did something before, so another start may do."""
    starts = iter([Unresponsive("No answer within 60 s."), None])

    def start_once(copies: Any) -> None:
        copies[1].open.append(None)
        if error := next(starts):
            raise error

    runner, copies = starting("actor*2 | learner", 20, start_once)
    state = runner.recovery.state.copies[1]
    state.worked = True
    runner.driver.start(copies)
    (death,) = state.deaths
    assert death.how == "was not there within 60 s"


def test_a_crash_is_told_from_a_start_that_failed_after_it(starting: Any) -> None:
    actors = iter("ab")

    def be_in_another() -> None:
        name = next(actors)
        copy.attach(SimpleNamespace(_actor_id=SimpleNamespace(hex=lambda: name)))

    def start_once(copies: Any) -> None:
        """It fails once; then an actor is there, and finds what the first one has left."""
        if copy.id == "a":
            be_in_another()
            raise Lost("actor died: it was killed.")
        assert copy.last == "a"
        copy.arrive(Arrived(2, "", "", Remains("step(3)", ended="crashed")))

    runner, (copy, _) = starting("actor | learner", 20, start_once)
    be_in_another()
    copy.arrive(Arrived(1, "", "", Remains()))
    state = runner.recovery.state.copies[0]
    state.worked = state.progress = True
    runner._died([End(0, "died")])
    crash, start = state.deaths
    assert (crash.how, crash.killed, crash.action) == ("crashed", False, "step(3)")
    assert (start.how, start.killed, start.action) == ("died: it was killed", True, "")


def test_without_restarts_who_is_late_to_start_is_not_said_to_have_died(starting: Any) -> None:
    said = "No answer within 1 s from actor 2 of 2, asked to `make`."

    def start_once(copies: Any) -> None:
        raise Unresponsive(said)

    runner, copies = starting("actor*2 | learner", 0, start_once)
    with pytest.raises(Unresponsive, match=f"^{said}$"):
        runner.driver.start(copies)


def test_what_is_slow_to_come_is_not_lost(monkeypatch: Any) -> None:
    losses = importlib.import_module("rondel.execution.backends.ray.pending_calls")

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
    driver = importlib.import_module("rondel.execution.backends.ray.driver")
    actor = importlib.import_module("rondel.execution.backends.ray.worker")
    runner = backend.Ray(restarts=1)
    runner.compose(parse("actor | learner"), None)
    copy = backend.RayProxy(runner.driver, 0, (0, 0), "actor")
    for number in range(5, 11):
        call = driver.PendingCall(copy, LoggedRequest(PRODUCE, (), []), number, number)
        call.done = number
        copy.open.append(call)
    error = ray.exceptions.RayTaskError("do", "", actor.OutOfTurn("actor", 10, 5))
    monkeypatch.setattr(driver, "over_by_now", lambda dones: {10} & set(dones))
    monkeypatch.setattr(driver, "outcome_of", lambda done: error)
    first = runner.driver.first_unanswered(copy.open[-1], error)
    assert first.number == 5
    again = pickle.loads(pickle.dumps(error.cause))
    assert (again.at, str(again)) == (5, "actor got request 10 but expected 5")
