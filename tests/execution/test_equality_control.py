"""Continuous control: the same run under other plans gives the same numbers bit for bit."""

from __future__ import annotations

from contextlib import closing
from functools import cache
from typing import Any

import numpy as np
import pytest

from execution.test_equality import assert_equal, run
from rondel.algorithms import catalogue
from rondel.envs.registry import make
from rondel.execution.backends.processes.backend import Processes
from rondel.execution.backends.threads import Threads
from rondel.execution.loop.ring import Ring
from rondel.execution.stages.task import Task
from rondel.plan.parser import parse

LANES, BLOCK, STEPS = 16, 4, 3_600  # an episode takes 200 steps
ENV = make("Pendulum-v1")
SMALL = {"rollout": 25, "updates_per_step": 0.01, "batch": 32, "capacity": 4_000, "hidden": (16,)}
HOME = "actor*4 | memory*2 | gradient+update"


def task(name: str) -> Task:
    found = catalogue.find(name)
    algorithm = found.make(found.config(**SMALL), ENV.spec._replace(lanes=LANES))
    return Task(algorithm, ENV, 3, LANES, BLOCK)


@cache
def ran(name: str, plan: str, lag: int = 0) -> dict[str, Any]:
    result = run(Ring(task(name), parse(plan, lag=lag)), STEPS)
    assert len(result["returns"]) == LANES  # else the end of an episode would not be tested
    return result


def long(*case: Any) -> Any:
    return pytest.param(*case, marks=pytest.mark.long)


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("qtopt", "actor*4 | memory | label*2 | gradient+update"),
        long("sac", "actor*2 | memory | gradient | update"),
        long("qtopt", "env*4 | policy*2 | memory+label | gradient | update"),
        long("td3", "actor*2 | memory | gradient | update"),
        long("ddpg", "actor*2 | memory | gradient | update"),
        long("apex-ddpg", "actor*4 | memory | gradient+update"),
        long("sac", "actor*4 | learner"),
        long("td3", "env*4 | policy*2 | learner"),
    ],
)
def test_a_cut_ring_equals_the_fused_one(name: str, plan: str) -> None:
    assert_equal(ran(name, plan), ran(name, "all"))


@pytest.mark.long
def test_apex_at_home_equals_the_same_shards_elsewhere() -> None:
    """Two shards draw other rows than one memory, so what it is compared with has two as well."""
    assert catalogue.find("apex-ddpg").card.plan == HOME
    home = ran("apex-ddpg", HOME, lag=2)
    assert_equal(home, ran("apex-ddpg", "actor+memory*2 | gradient | update", lag=2))
    carry = np.asarray(home["lanes"].carry)
    np.testing.assert_allclose(carry[[0, -1]], [0.4, 0.4**8], rtol=1e-5)  # its ladder


@pytest.mark.long
@pytest.mark.parametrize("backend", [Threads, Processes])
def test_qtopt_at_home_elsewhere_equals_the_fused_one(backend: type) -> None:
    home = catalogue.find("qtopt").card.plan
    assert "label*2" in home
    with closing(Ring(task("qtopt"), parse(home), backend())) as ring:
        assert_equal(run(ring, STEPS), ran("qtopt", "all"))


@pytest.mark.long
@pytest.mark.parametrize("name", ["sac", "td3", "qtopt"])
def test_a_delay_line_is_the_same_in_every_plan(name: str) -> None:
    assert_equal(ran(name, "actor*4 | learner", lag=2), ran(name, "all", lag=2))
    with pytest.raises(AssertionError):
        assert_equal(ran(name, "all", lag=2), ran(name, "all"))
