"""C51, QR-DQN, Rainbow, Ape-X and Gorila: what each adds to DQN, on probes and under plans."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rondel
from execution.test_equality import BLOCK, ENV, LANES, SEED, SPEC, assert_equal, run
from marks import few_of
from rondel.algorithms import catalogue, dqn
from rondel.errors import RondelError
from rondel.execution.loop.ring import Ring
from rondel.execution.stages.task import Task
from rondel.nets.noisy import with_noise
from rondel.ops import random
from rondel.plan.parser import parse
from rondel.spaces import MASK, Box, Discrete, MultiBinary
from rondel.types import EnvSpec

TWO = Box(np.full(2, -1.0, np.float32), np.ones(2, np.float32))
THREE = EnvSpec("test:discrete", TWO, Discrete(3), lanes=2)
TINY = {"rollout": 4, "updates": 2, "batch": 32, "capacity": 1_000, "warmup": 100, "hidden": (8, 8)}
RANGE = {"atoms": 9, "return_min": -4.0, "return_max": 4.0}


@functools.cache
def build(name, spec=THREE, masked=False, **fields):
    found = catalogue.find(name)
    if masked:
        spec = spec._replace(observation={"x": TWO, MASK: MultiBinary((3,))})
    algorithm = found.make(found.config(**TINY | RANGE | fields), spec)
    return algorithm, jax.jit(algorithm.init)(random.key(0))


def keys(n):
    return random.fold(random.key(0)[None], jnp.arange(n))


@pytest.mark.parametrize("name", ["c51", "qrdqn", "rainbow"])
def test_actors_and_learners_agree_on_how_wrong_they_are(name, stream):
    """The first priority of a row is what `gradient` says of it, if target and noise are none."""
    fields = {"prioritised": True, "n_step": 3, "double": False, "discount": 0.9, "noise": 0.0}
    algorithm, state = build(name, **fields)
    experience = stream(12, 2)
    prepare, add = jax.jit(algorithm.prepare), jax.jit(algorithm.memory.add)
    memory, first = None, {}
    for r in range(3):
        items, _ = prepare(algorithm.acting(state), experience.round(r, 4, algorithm.overlap))
        memory = memory or algorithm.memory.init(items, 1)
        memory = add(memory, items, random.key(r))
        for b, t in zip(*np.nonzero(np.asarray(items.valid)), strict=True):
            first[np.asarray(items.obs[b, t]).tobytes()] = float(items.priority[b, t])
    batch, _ = jax.jit(algorithm.memory.draw)(memory, random.key(0), 0)
    _, _, feedback, _ = jax.jit(algorithm.gradient)(algorithm.learning(state), batch, random.key(0))
    rows = np.nonzero(np.asarray(batch.valid))[0]
    assert len(rows) > 8
    expected = [first[np.asarray(batch.obs[i]).tobytes()] for i in rows]
    np.testing.assert_allclose(np.asarray(feedback)[rows], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["c51", "qrdqn", "rainbow"])
def test_actions_that_are_not_allowed_are_not_taken(name):
    algorithm, state = build(name, masked=True)
    mask = np.tile(np.array([[0, 1, 1], [0, 1, 0], [1, 0, 0]], np.int8), (20, 1))
    obs = {"x": np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32), MASK: mask}
    for explore in (False, True):
        action, _, _ = algorithm.act(algorithm.acting(state), (), obs, keys(60), explore)
        assert mask[np.arange(60), np.asarray(action)].all()


def test_noise_is_for_exploring_alone():
    algorithm, state = build("rainbow", noise=5.0)
    weights, obs = algorithm.acting(state), np.full((400, 2), 0.3, np.float32)
    greedy, _, _ = algorithm.act(weights, (), obs, keys(400), False)
    noisy, _, _ = algorithm.act(weights, (), obs, keys(400), True)
    assert len(set(greedy.tolist())) == 1
    assert set(noisy.tolist()) == {0, 1, 2}


def test_noise_of_a_gradient_comes_from_its_key():
    algorithm, state = build("rainbow")
    rng = np.random.default_rng(0)
    obs, after = rng.normal(size=(2, 32, 2)).astype(np.float32)
    ones = np.ones(32, np.float32)
    batch = dqn.TransitionBatch(obs, after, np.zeros(32, int), ones, 0.9 * ones, ones > 0, ones)
    gradient = jax.jit(algorithm.gradient)
    one, again, other = (
        gradient(algorithm.learning(state), batch, random.key(k))[0]["value"][0]["w_spread"]
        for k in (0, 0, 1)
    )
    assert (np.asarray(one) == np.asarray(again)).all()
    assert (np.asarray(one) != np.asarray(other)).any()


def test_each_network_of_a_gradient_has_noise_of_its_own():
    algorithm, state = build("dqn", noise=2.0)
    rng = np.random.default_rng(0)
    obs, after = rng.normal(size=(2, 32, 2)).astype(np.float32)
    rows, ones = np.arange(32), np.ones(32, np.float32)
    batch = dqn.TransitionBatch(obs, after, rows % 3, ones, 0.9 * ones, ones > 0, ones)
    key = random.key(5)
    feedback = jax.jit(algorithm.gradient)(algorithm.learning(state), batch, key)[2]
    apply = dqn.network_for(dqn.Config(**TINY | {"noise": 2.0}), THREE, 3).apply
    # all three have the same parameters, so that only their noise tells them apart
    said = [
        np.asarray(apply(with_noise(state.params, key, nth), seen))
        for nth, seen in enumerate((obs, after, after))
    ]
    taken, (valued, chooser) = said[0][rows, rows % 3], said[1:]
    target = 1.0 + 0.9 * valued[rows, chooser.argmax(-1)]
    np.testing.assert_allclose(feedback, np.abs(taken - target), rtol=1e-4, atol=1e-5)
    assert (chooser.argmax(-1) != valued.argmax(-1)).any()


def test_the_ladder_by_hand():
    algorithm, state = build("apex", THREE._replace(lanes=8))
    # 1 + 7 i / 7
    rungs = algorithm.carry(jnp.arange(8))
    np.testing.assert_allclose(rungs, np.arange(1.0, 9.0), rtol=1e-6)
    n = 20_000
    rung, obs = jnp.repeat(rungs[:3], n), np.full((3 * n, 2), 0.5, np.float32)
    weights = algorithm.acting(state)
    assert float(weights.epsilon) == pytest.approx(0.4)
    action, carry, _ = jax.jit(algorithm.act, static_argnums=4)(
        weights, rung, obs, keys(3 * n), True
    )
    greedy, _, _ = algorithm.act(weights, rung[:1], obs[:1], keys(1), False)
    # 0.4, 0.16 and 0.064 of the actions are random, and a third of these the best one all the same
    other = (np.asarray(action) != int(greedy[0])).reshape(3, n).mean(1)
    np.testing.assert_allclose(other, np.array([0.4, 0.16, 0.064]) * 2 / 3, atol=0.01)
    assert (np.asarray(carry) == np.asarray(rung)).all()


def test_one_lane_has_the_first_rung():
    algorithm, _ = build("apex", THREE._replace(lanes=1))
    assert algorithm.carry(jnp.arange(1)).tolist() == [1.0]


def test_a_rung_is_no_memory_that_a_policy_hands_out():
    with rondel.start("apex", "probe:both", lanes=8, tuned=False, **TINY) as started:
        assert started.policy.act(np.zeros(1, np.float32)) in (0, 1)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"returns": "median"},
            "returns must be mean, categorical, quantile or rescaled, got 'median'",
        ),
        (
            {"return_min": 3.0, "return_max": 3.0},
            "return_min must be below return_max=3.0, got 3.0",
        ),
        ({"atoms": 1}, "atoms must be 2 or more, got 1"),
        ({"noise": -1.0}, "noise must be 0 or more, got -1.0"),
    ],
)
def test_what_can_not_work_gets_a_sentence(fields, sentence):
    with pytest.raises(RondelError, match=sentence):
        dqn.Config(**fields)


def learn(name, probe, **fields):
    settings = {"rollout": 4, "updates": 16, "warmup": 100, "target_every": 20, "hidden": (16, 16)}
    settings |= {"capacity": 2_000, "batch": 32, "learning_rate": 0.01, "discount": 0.5}
    settings |= {"return_min": -2.0, "return_max": 2.0, "atoms": 9, "lanes": 8} | fields
    run = rondel.start(name, f"probe:{probe}", steps=2_500, tuned=False, **settings)
    for _ in run.rounds():
        pass
    config, spec = run.setup.config, run.setup.task.env.spec
    network, returns = dqn.network_for(config, spec, 2), dqn.returns_for(config)
    return lambda obs: np.asarray(returns.mean(network.apply(run.state.params, np.float32(obs))))


# observations, and what both actions are worth
WORTH = {
    "delay": ([[0.0], [1.0]], [[0.5, 0.5], [1.0, 1.0]]),  # bootstrapping
    "both": ([[-1.0], [1.0]], [[1.0, -1.0], [-1.0, 1.0]]),
}


FINDERS = [("c51", "delay"), ("qrdqn", "both"), ("c51", "both"), ("qrdqn", "delay")]


@pytest.mark.parametrize(("name", "probe"), few_of(FINDERS, FINDERS[:2]))
def test_it_finds_what_actions_are_worth(name, probe):
    q = learn(name, probe, epsilon_end=0.2, epsilon_steps=1_000)
    obs, expected = WORTH[probe]
    np.testing.assert_allclose(q(obs), expected, atol=0.1)


@pytest.mark.long
@pytest.mark.parametrize("name", ["rainbow", "apex"])
def test_it_finds_the_best_actions_and_what_they_are_worth(name):
    """What is no longer tried need not be known well."""
    obs, expected = WORTH["both"]
    q = learn(name, "both", learning_rate=0.003)(obs)
    assert q.argmax(-1).tolist() == [0, 1]
    np.testing.assert_allclose(q.max(-1), np.max(expected, -1), atol=0.1)


def result(name, plan, lag=0):
    algorithm, _ = build(name, SPEC)
    ring = Ring(Task(algorithm, ENV, SEED, LANES, BLOCK), parse(plan, lag))
    try:
        return run(ring, 900)
    finally:
        ring.close()


@pytest.mark.parametrize(
    ("name", "plan", "lag", "other"),
    [
        # noise is keyed by step and lane, and a gradient's by round and draw
        pytest.param(
            *("rainbow", "all", 0, "actor*2 | memory | gradient | update"), marks=pytest.mark.long
        ),
        # shards draw other rows than a whole memory does, wherever they are
        pytest.param(
            *("apex", "actor+memory*2 | gradient+update", 2),
            "actor*2 | memory*2 | gradient+update",
            marks=pytest.mark.long,
        ),
        pytest.param(
            *("gorila", "actor+memory*2 | gradient*2 | update", 2),
            "actor*2 | memory*2 | gradient*2 | update",
            marks=pytest.mark.long,
        ),
        pytest.param("apex", "all", 0, "actor*2 | learner", marks=pytest.mark.long),
        pytest.param("c51", "all", 0, "env*2 | policy | learner", marks=pytest.mark.long),
        pytest.param("qrdqn", "all", 2, "actor*2 | learner", marks=pytest.mark.long),
        pytest.param("rainbow", "all", 2, "env*2 | policy+learner", marks=pytest.mark.long),
    ],
)
def test_other_plans_give_the_same_numbers(name, plan, lag, other):
    assert_equal(result(name, other, lag), result(name, plan, lag))


@pytest.mark.parametrize("name", ["apex", "gorila"])
def test_the_plan_of_the_paper_is_a_preset_and_fits(name):
    found = catalogue.find(name)
    preset = parse(name)
    assert str(preset) == found.card.plan
    assert preset.free
    with rondel.start(name, "CartPole-v1", plan=name, on="inline", free=False) as started:
        assert started.setup.options.lanes == found.card.lanes
