"""Actors that die, and nodes: what was lost with them is made again."""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from execution.backends import same, tiny
from execution.backends.remains import eventually, runs
from execution.backends.test_ray import marked
from execution.backends.test_recovery import PLANS, Once, crash_always, hang, stop
from execution.test_equality import assert_equal, run, task
from rondel.execution.backend import Late, Lost
from rondel.execution.backends.actor import Arrived
from rondel.execution.backends.journal import Asked, Journal
from rondel.execution.backends.ledger import Call, Promise
from rondel.execution.blackbox import Remains
from rondel.execution.loop import Limits, rounds
from rondel.execution.ring import Ring
from rondel.execution.supervise import MOST_BYTES
from rondel.plan import parse

ray = pytest.importorskip("ray")
backend = importlib.import_module("rondel.execution.backends.ray")
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
        reports = rounds(ring, Limits(900))
        next(reports)
        runner.settled(now=True)  # some have a state that was kept, and messages since
        next(reports)
        disturb(runner)
        result = run(ring, 900)
        assert runner._restarted
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


def test_a_node_is_lost_and_another_joins(cluster: Any) -> None:
    """All that its actors have made and nobody has taken yet is lost with it."""
    node = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()

    def lose_the_node(runner: Any) -> None:
        assert {copy.node for copy in runner._copies} == {n["NodeID"] for n in ray.nodes()}
        cluster.remove_node(node)
        cluster.add_node(num_cpus=2)

    got = disturbed(backend.Ray(restarts=20), "toy", "actor*2 | learner", lose_the_node)
    assert_undisturbed(got, "toy", "actor*2 | learner")


@pytest.mark.long
def test_a_snapshot_is_lost_before_it_was_fetched(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()

    def lose_the_answer(runner: Any) -> None:
        away = next(copy for copy in runner._copies if copy.node == node.node_id)
        before = runner.get([away.call("snapshot")])
        asked = away.call("snapshot")
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


@pytest.mark.parametrize("plan", [PLANS[0], pytest.param(PLANS[1], marks=pytest.mark.long)])
def test_an_environment_that_always_fails_at_one_action(plan: str) -> None:
    said = r"\(process \d+ on .*\) crashed in step\(\[0.*\]\), for the third time in a row"
    with pytest.raises(Lost, match=said):
        tiny.run(backend.Ray(restarts=20), plan, tiny.task(crash_always))


@pytest.mark.long
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("do", [hang, stop])
def test_an_environment_that_fails_once(plan: str, do: Any, tmp_path: Path) -> None:
    """A deadline is also what a copy may take to start."""
    runner = backend.Ray(deadline=30.0, restarts=20)
    tiny.run(runner, plan, tiny.task(Once(tmp_path / "done", do)))
    assert (tmp_path / "done").exists()
    assert runner._restarted == 1


@pytest.mark.long
@pytest.mark.parametrize("too", [False, True])
def test_the_head_is_lost(too: bool, tmp_path: Path) -> None:
    """Ray itself would end the program after a minute, in words of its own. An actor dies `too`."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    environ |= {"RONDEL_MARK": str(tmp_path), "COLUMNS": "400"}
    asked = "train ppo CartPole-v1 --steps 1000000000 --on ray --out run --plan".split()
    with (tmp_path / "errors").open("w") as errors:  # no pipe: Ray's own processes hold it too
        program = subprocess.Popen(
            [sys.executable, "-m", "rondel", *asked, "actor*2 | learner"],
            cwd=tmp_path,
            env=environ,
            stdout=errors,
            stderr=errors,
        )
    try:
        metrics = tmp_path / "run" / "metrics.jsonl"
        assert eventually(lambda: metrics.exists() and metrics.stat().st_size > 0, 120)
        there = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in marked(tmp_path)}
        heads = [pid for pid, command in there.items() if "gcs_server" in command.split("\0")[0]]
        actors = [pid for pid, command in there.items() if command.startswith("ray::Worker")]
        assert (len(heads), len(actors)) == (1, 3)
        for pid in heads + actors[: int(too)]:
            os.kill(pid, signal.SIGKILL)
        program.wait(timeout=90)
    finally:
        program.kill()
        program.wait()
    said = (tmp_path / "errors").read_text()
    assert program.returncode == 2, said
    assert "is gone, and with it the cluster" in said
    assert "`rondel resume FOLDER` goes on from the last checkpoint" in said
    assert "Traceback" not in said
    assert not any(map(runs, actors))
    assert eventually(lambda: not any(map(runs, there)), 90)  # Ray's own look for the head so long


def test_a_crash_is_told_from_a_start_that_failed_after_it(monkeypatch: Any) -> None:
    recovery = importlib.import_module("rondel.execution.backends.ray.recovery")
    actors = iter("ab")
    copy = backend.RayCopy(None, (0, 0), "actor 1 of 2")

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
            copy.arrive(Arrived(2, "", "", Remains("step(3)", crashed=True)))

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


def test_what_is_slow_to_come_is_not_lost(monkeypatch: Any) -> None:
    faults = importlib.import_module("rondel.execution.backends.ray.faults")

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
    assert faults.lost_of(["there", "slow", "lost", "sent away", "lost"], 1.0) == {"lost"}


@pytest.mark.parametrize(
    ("address", "reached"),
    [("10.0.0.1:6379", True), ("[fd00::1]:6379", True), ("10.9.9.9:6379", False)],
)
def test_only_a_head_that_was_reached_can_be_missed(
    address: str, reached: bool, monkeypatch: Any
) -> None:
    module = importlib.import_module("rondel.execution.backends.ray.head")
    there = [("10.0.0.1", 6379), ("fd00::1", 6379)]

    def connect(at: Any, timeout: float) -> Any:
        if at not in there:
            raise OSError
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(module.socket, "create_connection", connect)
    monkeypatch.setattr(module, "_PATIENCE", -1.0)
    context = SimpleNamespace(gcs_address=address)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    head = module.Head()
    head.require()
    assert not head.gone
    there.clear()
    with pytest.raises(Lost, match="is gone") if reached else nullcontext():
        head.require()
    assert head.gone == reached


class Keeping:
    """A copy that has answered two calls: it has made something, and given its state."""

    def __init__(self) -> None:
        self.arrival, self.keeping, self.open = None, 0.0, ()
        self.journal = Journal(is_kept=True, reads=True)
        self.made = self._promise("made")
        self.journal.note(Asked("produce", (), [self.made]))

    def _promise(self, ref: str) -> Any:
        promise = Promise()
        promise.ref, promise.call = ref, Call(self, Asked("", (), None), 0, 0)
        promise.call.end()
        return promise

    def call(self, request: str, *args: Any) -> Any:
        self.journal.note(Asked(request, args, []))
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
    runner._copies = [Keeping()]
    runner._keeper.abandon()  # so that it is time to
    return runner, waited


def test_what_is_lost_before_it_was_brought_here_can_still_be_made_again(
    keeping: Any, monkeypatch: Any
) -> None:
    runner, _ = keeping
    (copy,) = runner._copies

    def lose(promises: Any, patience: float) -> None:
        if copy.made in promises:
            raise ray.exceptions.ObjectLostError("", "", "")

    with monkeypatch.context() as patch:
        patch.setattr(backend, "bring_here", lose)
        runner.settled()
    assert [asked.request for asked in copy.journal.answered] == ["produce"]
    assert copy.journal.base is None
    runner.settled()
    assert (copy.journal.answered, copy.journal.base.ref) == ([], "state")


@pytest.mark.parametrize(("nbytes", "patience"), [(0, 0.0), (2 * MOST_BYTES, 60.0)])
def test_states_are_waited_for_if_too_much_is_kept(
    nbytes: int, patience: float, keeping: Any
) -> None:
    runner, waited = keeping
    runner._keeper.count(nbytes)
    runner.settled()
    assert waited == [patience]


def test_states_that_do_not_come_are_not_waited_for_forever(keeping: Any, monkeypatch: Any) -> None:
    runner, _ = keeping
    monkeypatch.setattr(backend.ray, "wait", lambda refs, **_: ([], refs))
    runner.settled()  # later will do
    with pytest.raises(Late, match="did not come to the driver within 60 s"):
        runner.settled(now=True)


def test_a_client_brings_all_that_is_needed(monkeypatch: Any) -> None:
    """At ray://… it can't ask where something is: that is known inside of the cluster only."""
    faults = importlib.import_module("rondel.execution.backends.ray.faults")
    monkeypatch.setattr(faults.is_client.__globals__["client"].ray, "is_connected", lambda: True)
    monkeypatch.setattr(ray, "get", lambda ref, timeout: f"value of {ref}")
    monkeypatch.setattr(ray, "put", lambda value: f"held: {value}")
    promise = Promise()
    promise.ref = "made"
    faults.bring_here([promise], 1.0)
    assert promise.ref == "held: value of made"


def test_calls_are_asked_again_from_the_first_that_did_not_come(monkeypatch: Any) -> None:
    # Calls 5 to 9 failed and the driver has not heard of it; of call 10 it has: not its turn.
    recovery = importlib.import_module("rondel.execution.backends.ray.recovery")
    actor = importlib.import_module("rondel.execution.backends.actor")
    copy = backend.RayCopy(None, (0, 0), "actor 1 of 2")
    for number in range(5, 11):
        call = recovery.Call(copy, recovery.Asked("produce", (), []), number, number)
        call.done = number
        copy.open.append(call)
    error = ray.exceptions.RayTaskError("do", "", actor.OutOfTurn("actor 1 of 2", 10, 5))
    monkeypatch.setattr(recovery, "_over", lambda dones: {10} & set(dones))
    monkeypatch.setattr(recovery, "outcome_of", lambda done: error)
    first = recovery.Recovery(1.0, 1)._first_unanswered(copy.open[-1], error)
    assert first.number == 5
    again = pickle.loads(pickle.dumps(error.cause))
    assert (again.at, str(again)) == (5, "actor 1 of 2 was asked for 10, and is at 5")
