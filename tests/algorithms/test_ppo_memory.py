"""PPO with a memory: what it remembers is kept, reset and cut right."""

import jax
import numpy as np
import pytest

import rondel
from execution.test_equality import BLOCK, LANES, SEED, assert_equal, run
from marks import few_of
from rondel.algorithms import ppo
from rondel.algorithms.wrappers import with_observation_normalisation
from rondel.envs.registry import make
from rondel.errors import RondelError
from rondel.execution.loop.ring import Ring
from rondel.execution.stages.task import Task
from rondel.plan.parser import parse

SMALL = {"hidden": (8,), "memory_size": 8, "rollout": 16, "epochs": 2, "minibatches": 2}


@pytest.mark.parametrize(("memory", "sequence"), few_of([("gru", 4), ("lstm", 16)], [("gru", 4)]))
def test_the_first_minibatch_sees_the_policy_that_acted(memory, sequence):
    """Its ratio is 1 but for rounding, in sequences that begin anywhere and hold whole episodes.

    So it is only if every sequence begins with what was remembered there, and every episode anew.
    """
    reports = list(
        rondel.start(
            "ppo", "probe:memory", tuned=False, steps=400, lanes=8, rollout=16, epochs=1,
            minibatches=1, learning_rate=0.05, hidden=(8,), memory=memory, memory_size=8,
            sequence=sequence, normalise_observations=True,
        )
    )  # fmt: skip
    assert len(reports) > 3
    assert abs(reports[-1].metrics["entropy"] - reports[0].metrics["entropy"]) > 0.001  # it moved
    for report in reports:
        assert abs(report.metrics["kl"]) < 1e-6
        assert report.metrics["clipped"] == 0.0


def learned(**fields):
    with rondel.start(
        "ppo", "probe:memory", tuned=False, steps=30_000, lanes=16, rollout=16, hidden=(16,),
        learning_rate=0.003, entropy_cost=0.01, discount=0.9, **fields,
    ) as run:  # fmt: skip
        for _ in run.rounds():
            pass
        return run.evaluate(200).mean


@pytest.mark.parametrize("memory", few_of(["gru", "lstm"], ["gru"]))
def test_a_memory_answers_what_was_asked_three_steps_ago(memory):
    assert learned(memory=memory, memory_size=16, sequence=8) == 1.0


def recurrent_task(memory, env="CartPole-v1"):
    world = make(env)
    spec = world.spec._replace(lanes=LANES)
    algorithm = ppo.make(ppo.Config(**SMALL, memory=memory, sequence=4), spec)
    return Task(with_observation_normalisation(algorithm, spec), world, SEED, LANES, BLOCK)


PLANS = (
    "actor*2 | learner",
    "env*2 | policy | learner",
    "env | policy+memory | gradient | update",
    "actor | memory | gradient+update",
)


def result(task, plan):
    ring = Ring(task, parse(plan))
    try:
        return run(ring, 900)
    finally:
        ring.close()


@pytest.mark.parametrize(
    ("memory", "plans"),
    [
        pytest.param("gru", PLANS, marks=pytest.mark.long),
        pytest.param("lstm", PLANS, marks=pytest.mark.long),
    ],
)
def test_every_plan_gives_the_same_numbers(memory, plans):
    task = recurrent_task(memory)
    whole = result(task, "all")
    assert any(np.asarray(x).any() for x in jax.tree.leaves(whole["lanes"].carry))
    for plan in plans:
        assert_equal(result(task, plan), whole)


@pytest.mark.long
def test_the_host_loop_gives_the_same_numbers_under_every_plan():
    task = recurrent_task("gru", "gymnasium:CartPole-v1")
    whole = result(task, "all")
    for plan in ("actor*2 | learner", "env*2 | policy | learner"):
        assert_equal(result(task, plan), whole)


def test_a_sequence_must_divide_the_rollout():
    with pytest.raises(RondelError, match=r"sequence must divide rollout=16, got 5. Use 1, 2,"):
        rondel.start("ppo", "probe:memory", rollout=16, memory="gru", sequence=5)


def test_an_unknown_memory_gets_a_sentence():
    with pytest.raises(RondelError, match="memory must be none, gru or lstm, got 'rnn'"):
        rondel.start("ppo", "probe:memory", memory="rnn")


def test_a_policy_hands_its_memory_to_whoever_asks():
    with rondel.start("ppo", "probe:memory", memory="gru", memory_size=4) as started:
        obs = np.zeros(2, np.float32)
        action, carry = started.policy.act(obs)
        assert action.shape == ()
        again, _ = started.policy.act(obs, carry)
        assert again in (0, 1)
