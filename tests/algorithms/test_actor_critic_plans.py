"""The on-policy family under the plans that suit it: the same numbers as in one piece."""

import functools

import jax
import numpy as np
import pytest

from execution.test_equality import assert_equal, run
from marks import few_of
from rondel.algorithms.catalogue import find
from rondel.algorithms.wrappers import with_observation_normalisation
from rondel.envs.registry import make
from rondel.execution.loop.ring import Ring
from rondel.execution.stages.task import Task
from rondel.plan.parser import parse

ENV = make("CartPole-v1")
SPEC = ENV.spec._replace(lanes=8)
FIELDS = {
    "pg": {"rollout": 16, "longest": 40},
    "a2c": {"rollout": 8, "memory": "gru", "memory_size": 4},
    "a3c": {"rollout": 8},
    "impala": {"rollout": 8, "minibatches": 2, "memory": "lstm", "memory_size": 4},
    "appo": {"rollout": 8},
}


@functools.cache
def task(name):
    found = find(name)
    algorithm = found.make(found.config(hidden=(8,), **FIELDS[name]), SPEC)
    return Task(with_observation_normalisation(algorithm, SPEC), ENV, 3, lanes=8, block=2)


def result(name, plan, lag=0, steps=800):
    ring = Ring(task(name), parse(plan, lag=lag))
    try:
        return run(ring, steps)
    finally:
        ring.close()


CASES = [("pg", 0), ("a2c", 0), ("impala", 0), ("impala", 2), ("appo", 2)]


@pytest.mark.parametrize(("name", "lag"), few_of(CASES, [("impala", 2)]))
def test_the_home_plan_gives_the_numbers_of_the_whole_ring(name, lag):
    assert find(name).card.plan == "actor*4 | learner"
    assert_equal(result(name, find(name).card.plan, lag), result(name, "all", lag))


@pytest.mark.long
def test_a3c_at_home_is_the_same_however_it_is_cut():
    """Four gradients and one update; where the four are made does not matter."""
    home = result("a3c", find("a3c").card.plan, lag=2)
    assert_equal(result("a3c", "actor*4 | memory*4 | gradient*4 | update", lag=2), home)


@pytest.mark.long
def test_a3c_at_home_is_the_whole_ring_but_for_the_order_of_a_sum():
    home, whole = (
        result("a3c", plan, steps=200)["learner"] for plan in (find("a3c").card.plan, "all")
    )
    near = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5)
    jax.tree.map(near, home.inner.params, whole.inner.params)
