"""The same run, executed in other ways, gives the same numbers bit for bit."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import numpy as np
import pytest

from execution import toy
from rondel.algorithms import dqn, ppo
from rondel.algorithms.wrappers import with_observation_normalisation, with_reward_scaling
from rondel.envs import make
from rondel.execution.fragment import STAGES
from rondel.execution.keys import Purpose, key_of, per_lane
from rondel.execution.ring import Limits, Ring, rounds
from rondel.execution.task import Task

LANES, BLOCK, SEED = 16, 8, 3
ENV = make("CartPole-v1")
SPEC = ENV.spec._replace(lanes=LANES)


def wrapped_ppo() -> Any:
    small = ppo.Config(rollout=16, epochs=2, minibatches=2, hidden=(16, 16), target_kl=0.01)
    algorithm = with_reward_scaling(ppo.make(small, SPEC), LANES, 0.99)
    return with_observation_normalisation(algorithm, SPEC)


def ranked_dqn() -> Any:
    config = dqn.Config(
        rollout=4,
        updates=3,
        batch=32,
        capacity=1_000,
        warmup=200,
        n_step=3,
        prioritised=True,
        dueling=True,
        hidden=(16, 16),
    )
    return dqn.make(config, SPEC)


ALGORITHMS = {
    "ppo": wrapped_ppo,
    "dqn": ranked_dqn,
    "toy": lambda: toy.make(None, SPEC),
}


def task(name: str, env: Any = ENV) -> Task:
    return Task(ALGORITHMS[name](), env, SEED, LANES, BLOCK)


def run(ring: Ring, steps: int = 2_500, at_a_time: int | None = None) -> dict[str, Any]:
    """Everything that a run is after so many steps, and what it reported."""
    reports = list(rounds(ring, Limits(steps), at_a_time))
    returns = np.concatenate([report.returns for report in reports])
    tree = ring.tree() | {"memory": ring.memory.memory, "returns": returns}
    return jax.tree.map(np.asarray, tree | {"counts": [ring.round, ring.steps]})


def assert_equal(one: Any, two: Any) -> None:
    shared = one.keys() & two.keys()  # a host environment has no state of its own
    assert {"learner", "lanes", "recent", "memory", "returns"} <= shared
    for name in shared:
        jax.tree.map(np.testing.assert_array_equal, one[name], two[name])


def cuts() -> list[list[tuple[str, ...]]]:
    """All ways to cut the ring behind the policy."""
    actor, rest = STAGES[:2], STAGES[2:]
    ways = []
    for cut in product((False, True), repeat=3):
        pieces = [list(actor)]
        for stage, apart in zip(rest, cut, strict=True):
            pieces.append([stage]) if apart else pieces[-1].append(stage)
        ways.append([tuple(piece) for piece in pieces])
    return ways


@pytest.fixture(scope="module", params=ALGORITHMS)
def reference(request: Any) -> tuple[str, dict[str, Any]]:
    """The whole ring as one program."""
    ring = Ring(task(request.param))
    assert ring.fused
    result = run(ring)
    assert len(result["returns"]) > 20  # else the end of an episode would not be tested
    return request.param, result


@pytest.mark.parametrize("cut", cuts(), ids=lambda cut: "|".join("+".join(p) for p in cut))
def test_a_cut_ring_equals_the_fused_one(reference: Any, cut: Any) -> None:
    name, expected = reference
    ring = Ring(task(name), cut)
    ring.fused = False
    assert_equal(run(ring), expected)


def test_a_host_loop_equals_the_fused_ring(reference: Any) -> None:
    name, expected = reference
    keys = per_lane(key_of(SEED, Purpose.ENV), np.arange(LANES))
    ring = Ring(task(name, toy.host_twin(ENV, keys)))
    assert not ring.fused
    assert_equal(run(ring), expected)


@pytest.mark.parametrize("at_a_time", [1, 7])
def test_rounds_per_call_do_not_matter(reference: Any, at_a_time: int) -> None:
    name, expected = reference
    assert_equal(run(Ring(task(name)), at_a_time=at_a_time), expected)


def test_seeds_matter() -> None:
    one = run(Ring(task("ppo")))
    two = run(Ring(task("ppo")._replace(seed=SEED + 1)))
    with pytest.raises(AssertionError):
        assert_equal(one, two)


def test_a_run_that_goes_on_equals_one_that_never_stopped(reference: Any) -> None:
    name, expected = reference
    ring = Ring(task(name))
    run(ring, steps=1_000)
    saved = jax.tree.map(np.array, (ring.tree(), ring.memory.memory))
    other = Ring(task(name))
    other.restore(*jax.tree.map(jax.numpy.array, saved), ring.round, ring.steps)
    result = run(other)
    result["returns"] = expected["returns"]  # those before the stop were reported there
    assert_equal(result, expected)


def test_a_lane_does_not_depend_on_the_others() -> None:
    """The first block of 8 lanes acts the same with 8 more lanes beside it."""
    weights_of = Ring(task("toy")).update.acting
    few = Ring(task("toy")._replace(lanes=8))
    many = Ring(task("toy"))
    weights = weights_of()
    for round in range(4):
        made, more = few.policy.produce(weights, round), many.policy.produce(weights, round)
        jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y[:8]), made, more)
