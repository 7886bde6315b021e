"""Actors that die, and nodes: what was lost with them is made again."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from execution.backends import same
from execution.test_equality import assert_equal, run, task
from rondel.execution.backend import Lost
from rondel.execution.loop import Limits, rounds
from rondel.execution.ring import Ring
from rondel.plan import parse

ray = pytest.importorskip("ray")
backend = importlib.import_module("rondel.execution.backends.ray")
cluster_utils = importlib.import_module("ray.cluster_utils")
strategies = importlib.import_module("ray.util.scheduling_strategies")
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")


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
