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
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Nodes that can be lost, on this machine."""
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    backend.join(made.address)
    yield made
    ray.shutdown()
    made.shutdown()


def disturbed(runner: Any, name: str, plan: str, disturb: Any) -> Any:
    """A short run that is disturbed after its third round."""
    ring = Ring(task(name, same.ENV), parse(plan), runner)
    with closing(ring):
        reports = rounds(ring, Limits(900))
        next(reports)
        runner.settled(now=True)  # some have a state that was kept, and messages since
        next(reports)
        disturb(runner)
        result = run(ring, 900)
        assert sum(len(copy.journal.deaths) for copy in runner._copies) >= 1
    return result


def assert_undisturbed(got: Any, name: str, plan: str) -> None:
    wanted = same.inline(name, plan, 0, same.ENV)
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
def test_without_restarts_a_death_ends_the_run(cluster: Any) -> None:
    cluster.add_node(num_cpus=2)
    with pytest.raises(Lost, match=r"actor 1 of 2 \(process \d+ on .*\) died"):
        disturbed(backend.Ray(), "toy", "actor*2 | learner", kill_one)
