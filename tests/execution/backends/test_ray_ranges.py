"""A range of copies follows the nodes of a cluster: those that join are used, lost ones left."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import jax
import numpy as np
import pytest

from execution.backends import same
from execution.test_equality import task
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.rounds import Report
from rondel.execution.loop.sync_loop import Limits, run_rounds
from rondel.plan.parser import parse

ray = pytest.importorskip("ray")
backend = importlib.import_module("rondel.execution.backends.ray.backend")
cluster_utils = importlib.import_module("ray.cluster_utils")
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
PLAN = parse("actor*1..4 | learner", lag=1, free=True)


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A node with room for the learner and one actor."""
    args = {"num_cpus": 2, "resources": {"home": 1}}
    made = cluster_utils.Cluster(initialize_head=True, head_node_args=args)
    backend.join(made.address)
    yield made
    ray.shutdown()
    made.shutdown()


def until(reports: Iterator[Report], is_so: Callable[[Report], bool]) -> Report:
    """The first report of which it is so; within a minute."""
    end = time.monotonic() + 60
    for report in reports:
        if is_so(report):
            return report
        assert time.monotonic() < end, report.metrics
    raise AssertionError


def copies(number: int) -> Callable[[Report], bool]:
    return lambda report: report.metrics.get("policy/copies") == number


@pytest.mark.long
def test_nodes_come_and_go(cluster: Any) -> None:
    """Whoever acts, a round has the same rows, and none is lost or counted twice."""
    toy = task("toy", same.ENV)._replace(block=4)
    with closing(Ring(toy, PLAN, backend.Ray(restarts=20))) as ring:
        reports = run_rounds(ring, Limits(10**9))
        until(reports, copies(1))
        node = cluster.add_node(num_cpus=3)
        grown = until(reports, copies(4))
        cluster.remove_node(node)
        shrunk = until(reports, copies(1))
        assert shrunk.round > grown.round
        tree, counts = ring.tree(), (ring.round, ring.steps)
        cluster.add_node(num_cpus=1)
        last = until(reports, copies(2))
    assert last.metrics["policy/lag_max"] <= 1
    resumed(toy, tree, counts)


def resumed(toy: Any, tree: Any, counts: tuple[int, int]) -> None:
    """Those who were away are in a checkpoint too."""
    with closing(Ring(toy, parse("all"))) as whole:
        like = jax.tree.map(np.shape, whole.tree())
        assert jax.tree.map(np.shape, tree) == like
        whole.restore(tree, whole.stored(), *counts)
        assert next(run_rounds(whole, Limits(10**9))).round == counts[0]


@pytest.mark.long
def test_if_all_room_is_lost_they_act_on_where_they_can(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=2)
    runner = backend.Ray(resources=({"cpu": 1}, {"cpu": 2, "home": 1}), restarts=20)
    with closing(Ring(task("toy", same.ENV)._replace(block=4), PLAN, runner)) as ring:
        reports = run_rounds(ring, Limits(10**9))
        until(reports, copies(2))
        cluster.remove_node(node)
        lost = until(reports, lambda report: bool(runner.elastic.borrowers()))
        until(reports, lambda report: report.round > lost.round + 20)
        cluster.add_node(num_cpus=2)
        until(reports, lambda report: copies(2)(report) and not runner.elastic.borrowers())


@pytest.mark.long
def test_one_that_can_not_come_does_not_end_the_run(cluster: Any) -> None:
    runner = backend.Ray(restarts=20)
    with closing(Ring(task("toy", same.ENV)._replace(block=4), PLAN, runner)) as ring:
        reports = run_rounds(ring, Limits(10**9))
        until(reports, copies(1))
        runner.elastic.slots[1].packed = (True, b"nonsense")
        cluster.add_node(num_cpus=1)
        until(reports, lambda report: runner.recovery.state.copies[1].bar > 0)
        until(reports, copies(1))
        assert runner.elastic.here() == [0]
