"""The same run, executed in other ways, gives the same numbers bit for bit."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from itertools import product
from typing import Any

import jax
import numpy as np
import pytest

from execution import toy
from marks import few_of
from rondel.algorithms import dqn, es, ppo
from rondel.algorithms.wrappers import with_observation_normalisation, with_reward_scaling
from rondel.envs.registry import make
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.sync_loop import Limits, run_rounds
from rondel.execution.stages.task import Task
from rondel.plan.parser import parse
from rondel.plan.pieces import STAGES, Piece
from rondel.plan.plan import Plan

LANES, BLOCK, SEED = 16, 8, 3
ENV = make("CartPole-v1")
SPEC = ENV.spec._replace(lanes=LANES)


SMALL_PPO = ppo.Config(rollout=16, epochs=2, minibatches=2, hidden=(16, 16), target_kl=0.01)


def wrapped_ppo() -> Any:
    algorithm = with_reward_scaling(ppo.make(SMALL_PPO, SPEC), LANES, 0.99)
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


def wide_ppo() -> Any:
    """LAPACK makes its first weights, and rounds them as its number of threads would have it."""
    return ppo.make(ppo.Config(rollout=16, epochs=1, minibatches=1, hidden=(256, 256)), SPEC)


def standardised_es() -> Any:
    return es.make(es.Config(rollout=40, hidden=(16,), top=6, standardise=True), SPEC)


ALGORITHMS = {
    "ppo": wrapped_ppo,
    "wide": wide_ppo,
    "dqn": ranked_dqn,
    "es": standardised_es,
    "toy": lambda: toy.make(None, SPEC),
}


def task(name: str, env: Any = ENV) -> Task:
    return Task(ALGORITHMS[name](), env, SEED, LANES, BLOCK)


def run(ring: Ring, steps: int = 2_500, at_a_time: int | None = None) -> dict[str, Any]:
    """Everything that a run is after so many steps, and what it reported."""
    reports = list(run_rounds(ring, Limits(steps), at_a_time))
    returns = np.concatenate([report.returns for report in reports])
    tree = ring.tree() | {"memory": ring.stored(), "returns": returns}
    return jax.tree.map(np.asarray, tree | {"counts": [ring.round, ring.steps]})


def assert_equal(one: Any, two: Any) -> None:
    shared = one.keys() & two.keys()  # a host environment has no state of its own
    assert {"learner", "lanes", "recent", "memory", "returns"} <= shared
    # the learner first: runs of another lag have other flights too, which no array can tell
    for name in sorted(shared, key=lambda name: (name != "learner", name)):
        jax.tree.map(np.testing.assert_array_equal, one[name], two[name])


def cuts() -> list[Plan]:
    """All 16 ways to cut the ring."""
    ways = []
    for cut in product((False, True), repeat=4):
        pieces = [[STAGES[0]]]
        for stage, apart in zip(STAGES[1:], cut, strict=True):
            pieces.append([stage]) if apart else pieces[-1].append(stage)
        ways.append(Plan(tuple(Piece(tuple(piece)) for piece in pieces)))
    return ways


# copies of env and policy split the lanes: that changes nothing
COPIED = (
    "actor*2 | learner",
    "actor*2 | memory | gradient | update",
    "env*2 | policy+learner",
    "env*16 | policy | learner",
    "env*4 | policy*2 | learner",
    "env | policy*2 | learner",
    "env*2 | policy*2 | memory+gradient | update",
)


QUICK = {"env*4 | policy*2 | learner"}


def cases(plans: Iterable[Any], quick: Collection[str] = ()) -> list[Any]:
    """Every algorithm under every plan; what is not for the toy or in `quick` takes long."""
    return [
        pytest.param(
            name,
            str(plan),
            marks=() if name == "toy" or str(plan) in quick else pytest.mark.long,
        )
        for name in ALGORITHMS
        for plan in plans
    ]


@cache
def reference(name: str) -> dict[str, Any]:
    """The whole ring as one program."""
    ring = Ring(task(name))
    assert ring.fused
    result = run(ring)
    assert len(result["returns"]) > 20  # else the end of an episode would not be tested
    return result


EVERY = (*cuts()[1:], *COPIED)


@pytest.mark.parametrize(("name", "plan"), cases(EVERY, QUICK))
def test_a_cut_ring_equals_the_fused_one(name: str, plan: str) -> None:
    assert_equal(run(Ring(task(name), parse(plan))), reference(name))


@cache
def delayed(name: str) -> dict[str, Any]:
    """The uncut ring with weights that are two rounds old."""
    ring = Ring(task(name), parse("all", lag=2))
    assert not ring.fused
    return run(ring, 1_200)


LATE = few_of([("toy", str(plan)) for plan in EVERY], [("toy", str(plan)) for plan in COPIED])


@pytest.mark.parametrize(
    ("name", "plan"), [*LATE, *(case for case in cases(EVERY) if case.values[0] != "toy")]
)
def test_a_delay_line_is_the_same_in_every_plan(name: str, plan: str) -> None:
    result, expected = run(Ring(task(name), parse(plan, lag=2)), 1_200), delayed(name)
    assert len(expected["pending"]) == 2  # rounds in flight belong to a run
    assert_equal(result, expected)
    jax.tree.map(np.testing.assert_array_equal, result["pending"], expected["pending"])


def test_lag_matters() -> None:
    with pytest.raises(AssertionError):
        assert_equal(delayed("toy"), run(Ring(task("toy")), 1_200))


@pytest.mark.parametrize(
    ("plan", "then"),
    [
        ("all", "actor | learner"),
        ("env*2 | policy | learner", "all"),
        ("actor+memory*2 | gradient | update", "actor*2 | memory*2 | gradient+update"),
    ],
)
def test_a_run_in_flight_goes_on_under_another_plan(plan: str, then: str) -> None:
    expected = delayed("toy")
    if "memory*2" in plan:
        expected = run(Ring(task("toy"), parse(plan, lag=2)), 1_200)
    ring = Ring(task("toy"), parse(plan, lag=2))
    run(ring, 600)
    saved = jax.tree.map(np.array, (ring.tree(), ring.stored()))
    other = Ring(task("toy"), parse(then, lag=2))
    other.restore(*saved, ring.round, ring.steps)
    result = run(other, 1_200)
    result["returns"] = expected["returns"]
    assert_equal(result, expected)


@pytest.mark.long
def test_one_block_of_lanes_equals_too() -> None:
    """Then there is no loop over blocks, which would keep XLA from mixing the stages."""
    spec = SPEC._replace(lanes=BLOCK)
    algorithm = with_observation_normalisation(ppo.make(SMALL_PPO, spec), spec)
    one_block = Task(algorithm, ENV, SEED, BLOCK, BLOCK)
    assert_equal(run(Ring(one_block, parse("actor | learner"))), run(Ring(one_block)))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_host_loop_equals_the_fused_ring(name: str) -> None:
    expected = reference(name)
    ring = Ring(task(name, toy.host_twin(ENV, SEED)))
    assert not ring.fused
    assert_equal(run(ring), expected)


@cache
def on_gymnasium(name: str) -> dict[str, Any]:
    """The uncut ring over Gymnasium's own CartPole."""
    return run(Ring(task(name, make("gymnasium:CartPole-v1"))), 900)


@pytest.mark.parametrize(
    ("name", "plan"), cases(["actor*2 | learner", "env*8 | policy+learner", COPIED[-1]])
)
def test_a_cut_ring_equals_the_uncut_one_on_gymnasium(name: str, plan: str) -> None:
    ring = Ring(task(name, make("gymnasium:CartPole-v1")), parse(plan))
    assert_equal(run(ring, 900), on_gymnasium(name))


@pytest.mark.parametrize("at_a_time", [1, 7])
@pytest.mark.parametrize("name", few_of(ALGORITHMS, ["ppo", "dqn", "toy"]))
def test_rounds_per_call_do_not_matter(name: str, at_a_time: int) -> None:
    assert_equal(run(Ring(task(name)), at_a_time=at_a_time), reference(name))


def test_seeds_matter() -> None:
    one = run(Ring(task("ppo")))
    two = run(Ring(task("ppo")._replace(seed=SEED + 1)))
    with pytest.raises(AssertionError):
        assert_equal(one, two)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_that_goes_on_equals_one_that_never_stopped(name: str) -> None:
    expected = reference(name)
    ring = Ring(task(name))
    run(ring, steps=1_000)
    saved = jax.tree.map(np.array, (ring.tree(), ring.stored()))
    other = Ring(task(name))
    other.restore(*jax.tree.map(jax.numpy.array, saved), ring.round, ring.steps)
    result = run(other)
    result["returns"] = expected["returns"]  # those before the stop were reported there
    assert_equal(result, expected)


def test_a_lane_does_not_depend_on_the_others() -> None:
    """The first block of 8 lanes acts the same with 8 more lanes beside it."""
    few = Ring(task("toy")._replace(lanes=8), parse("actor | learner"))
    many = Ring(task("toy"), parse("actor | learner"))
    weights = many.acting()
    for round in range(4):
        made, more = (ring.policy[0].produce(weights, round) for ring in (few, many))
        jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y[:8]), made, more)
