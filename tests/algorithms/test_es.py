"""Evolution strategies and random search: by hand, and on the probes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import rondel
from execution.test_equality import assert_equal, run
from marks import few_of
from rondel.algorithms import ars, catalogue, es
from rondel.envs.registry import make
from rondel.errors import RondelError
from rondel.execution.loop.ring import Ring
from rondel.execution.stages.task import Task
from rondel.ops import random
from rondel.plan.parser import parse
from rondel.types import Trajectory

ENV = make("CartPole-v1")
SPEC = ENV.spec._replace(lanes=8)
ALL = jnp.ones(2, bool)


def test_ranks_are_centred_and_equals_share_theirs():
    # ranks 2, 0, 1 over 2, less a half
    np.testing.assert_allclose(es.centred_ranks(jnp.array([30.0, 1.0, 2.0])), [0.5, -0.5, 0.0])
    # the two ones have ranks 1 and 2: (1.5 / 3) - 0.5 = 0
    np.testing.assert_allclose(es.centred_ranks(jnp.array([1.0, 1, 4, 0])), [0, 0, 0.5, -0.5])
    np.testing.assert_allclose(es.centred_ranks(jnp.full(4, 500.0)), 0.0)


def test_what_a_pair_counts_by_ranks():
    # u: 3 -> 1/2, 1 -> -1/6, 0 -> -1/2, 2 -> 1/6. (u+ - u-) / (2 * 2 pairs * 0.1) = ±(2/3) / 0.4
    weights = es.by_ranks(jnp.array([[3.0, 1.0], [0.0, 2.0]]), ALL, 0.1)
    np.testing.assert_allclose(weights, [5 / 3, -5 / 3], rtol=1e-6)


def test_what_a_pair_counts_by_returns():
    # of 3, 1, 0, 2 the mean is 1.5 and the variance (2.25 + 0.25 + 2.25 + 0.25) / 4 = 1.25
    returns = jnp.array([[3.0, 1.0], [0.0, 2.0]])
    expected = np.array([2.0, -2.0]) / (2 * np.sqrt(1.25))
    np.testing.assert_allclose(es.by_returns(returns, ALL), expected, rtol=1e-6)
    # the best pair alone: (3 - 1) / (1 * 1), since the deviation of 3 and 1 is 1
    best = es.best_pairs(returns, 1)
    assert best.tolist() == [True, False]
    np.testing.assert_allclose(es.by_returns(returns, best), [2.0, 0.0], rtol=1e-6)
    np.testing.assert_allclose(es.by_returns(jnp.full((2, 2), 500.0), ALL), 0.0)


def test_an_episode_counts_with_its_return():
    # lane 0: none ends, 1 + 2 + 3 + 4; lane 1: one of 1 + 2, then a reset, then a part of another;
    # lane 2: two end, of 1 and of 3 + 4, with a reset between
    reward = jnp.array([[1.0, 1, 1], [2, 2, 0], [3, 0, 3], [4, 9, 4]])
    valid = jnp.array([[1, 1, 1], [1, 1, 0], [1, 0, 1], [1, 1, 1]], bool)
    ends = jnp.array([[0, 0, 1], [0, 1, 0], [0, 0, 0], [0, 0, 1]], bool)
    nothing = jnp.zeros_like(ends)
    tr = Trajectory((), (), (), reward, ends, nothing, valid, (), (), jnp.arange(3))
    np.testing.assert_allclose(es.episode_return(tr), [10.0, 3.0, 4.0])
    late = tr._replace(terminated=nothing, truncated=ends)
    np.testing.assert_allclose(es.episode_return(late), [10.0, 3.0, 4.0])


PARAMS = {"b": jnp.zeros(4), "w": jnp.zeros((100, 2))}


def begun(lanes, first=0):
    """What lanes have of their own around parameters that are all 0, and the parameters flat."""
    lane = jnp.arange(first, first + lanes, dtype=jnp.int32)
    start = jax.jit(partial(es.start, es.Config(sigma=0.5)))
    own = start(PARAMS, random.key(3), lane)
    flat = [np.reshape(x, (lanes, -1)) for x in jax.tree.leaves(own.params)]
    return own.key, np.concatenate(flat, 1)


def test_lanes_of_a_pair_have_opposite_noise_and_others_have_other():
    _, theta = begun(8)
    np.testing.assert_allclose(theta[0::2], -theta[1::2], rtol=1e-6)
    np.testing.assert_allclose(np.corrcoef(theta[0::2]), np.eye(4), atol=0.3)
    assert abs(theta[0::2].std() - 0.5) < 0.05


def test_the_learner_makes_the_same_noise_from_a_key():
    key, theta = begun(8)
    np.testing.assert_allclose(0.5 * es.noise(key[::2], 204), theta[::2], rtol=1e-5)
    np.testing.assert_allclose(begun(2, first=4)[1], theta[4:6], rtol=1e-5)  # in another copy


@pytest.mark.parametrize("at_once", [500, 2**20])  # two pairs, or all
def test_the_gradient_is_the_weighted_sum_of_the_noise(monkeypatch, at_once):
    monkeypatch.setattr(es, "_AT_ONCE", at_once)
    key, theta = begun(8)
    returns = jnp.array([[3.0, 1.0], [0.0, 2.0], [5.0, 5.0], [7.0, -1.0]])
    batch = es.Items(key.reshape(4, 2, 2), returns)
    gradient = jax.jit(partial(es.gradient, es.Config(sigma=0.5), 1.0))
    grads, weight, feedback, metrics = gradient(PARAMS, batch, jax.random.key(9))
    assert (float(weight), feedback) == (4.0, ())
    weights = np.asarray(es.by_ranks(returns, jnp.ones(4, bool), 0.5))
    ascent = weights @ (theta[::2] / 0.5)
    found = np.concatenate([grads["b"], grads["w"].reshape(-1)])
    np.testing.assert_allclose(found, -ascent, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(metrics["grad_norm"], np.linalg.norm(ascent), rtol=1e-5)


def test_many_pairs_find_the_gradient_of_a_linear_return():
    """With r = a·θ the mean of (r+ - r-) ε is 2σa, and σ_R is σ|a|."""
    a = np.random.default_rng(0).normal(size=10).astype(np.float32)
    key = jax.random.key_data(random.fold(random.key(1)[None], jnp.arange(4000)))
    side = 0.1 * es.noise(key, 10) @ a
    batch = es.Items(jnp.stack([key, key], 1), jnp.stack([side, -side], 1))
    gradient = jax.jit(partial(es.gradient, es.Config(shaping="returns", sigma=0.1), 1.0))
    found, *_ = gradient(jnp.zeros(10), batch, jax.random.key(0))
    # (1/n) Σ 2σ(a·ε)ε / (σ|a|) -> 2 a / |a|, and gradients point downhill
    np.testing.assert_allclose(found, -2 * a / np.linalg.norm(a), atol=0.15)


def test_weight_decay_and_plain_steps_by_hand():
    fields = {"optimiser": "sgd", "sigma": 0.5, "weight_decay": 0.1, "learning_rate": 2.0}

    def stepped(shaping):
        optimiser = es.optimiser_for(es.Config(shaping=shaping, **fields))
        state = es.State(jnp.array([1.0]), optimiser.init(jnp.array([1.0])))
        return es.update(optimiser, state, jnp.array([0.3])).params

    # by returns: 1 - 2 * (0.3 + 0.1 * 1); by ranks the gradient has 1 / σ, and the decay too
    np.testing.assert_allclose(stepped("returns"), [0.2], rtol=1e-6)
    np.testing.assert_allclose(stepped("ranks"), [0.0], atol=1e-6)


@pytest.mark.parametrize("sigma", [0.02, 0.5])
def test_steps_are_those_of_the_authors_code(sigma):
    """Which divides the sum by the number of returns alone, adds the decay, and asks Adam."""
    config = es.Config(sigma=sigma, weight_decay=0.05)
    key = jax.random.key_data(random.fold(random.key(3)[None], jnp.arange(8)))
    returns = jax.random.normal(jax.random.key(1), (8, 2))
    theta = jnp.linspace(-2.0, 2.0, 6)
    optimiser, adam = es.optimiser_for(config), optax.adam(config.learning_rate)
    state = es.State(theta, optimiser.init(theta))
    theirs, moments = theta, adam.init(theta)
    for _ in range(5):
        batch = es.Items(jnp.stack([key, key], 1), returns)
        grads, *_ = es.gradient(config, 1.0, state.params, batch, jax.random.key(0))
        state = es.update(optimiser, state, grads)
        ranks = es.centred_ranks(returns.reshape(-1)).reshape(returns.shape)
        ascent = (ranks[:, 0] - ranks[:, 1]) @ es.noise(key, 6) / returns.size
        change, moments = adam.update(-ascent + config.weight_decay * theirs, moments)
        theirs = optax.apply_updates(theirs, change)
        returns = returns + 1e-2 * jnp.arange(16).reshape(8, 2)
    np.testing.assert_allclose(state.params, theirs, rtol=2e-5)


@pytest.mark.parametrize("name", few_of(["es", "ars"], ["ars"]))
def test_what_crosses_the_cut_does_not_depend_on_the_network(name):
    def crossing(hidden):
        facts = rondel.explain(
            name, "CartPole-v1", plan=es.CARD.plan, lanes=64, hidden=hidden, tuned=False
        )
        return {one.what: one for one in facts.messages}

    small, large = crossing((8,)), crossing((512, 512))
    assert small["items"] == large["items"]
    assert small["summary"] == large["summary"]
    assert small["items"].message_bytes == 8 * (8 + 4)  # 8 lanes of a key and a return
    assert small["weights"].message_bytes < large["weights"].message_bytes  # they go the other way


def ran(name, plan):
    """A short run of 16 lanes, with an episode's end in nearly every round."""
    found = catalogue.find(name)
    spec = SPEC._replace(lanes=16)
    algorithm = found.make(found.config(rollout=24, hidden=(4,), top=5), spec)
    ring = Ring(Task(algorithm, ENV, 3, lanes=16, block=2), parse(plan))
    try:
        return run(ring, 1_200)
    finally:
        ring.close()


@pytest.mark.parametrize("name", few_of(["ars", "es"], ["ars"]))
def test_the_home_plan_gives_the_numbers_of_the_whole_ring(name):
    assert_equal(ran(name, es.CARD.plan), ran(name, "all"))


def learned(name, probe, **fields):
    run = rondel.start(name, f"probe:{probe}", tuned=False, rollout=8, **fields)
    for _ in run.rounds():
        pass
    return run


@pytest.mark.parametrize("name", few_of(["es", "ars"], ["ars"]))
def test_probes_of_actions_are_learned(name):
    fields = {"lanes": 16, "steps": 4_000, "learning_rate": 0.1, "sigma": 0.2, "hidden": ()}
    run = learned(name, "both", **fields)
    assert run.policy.act(np.float32([[-1.0], [1.0]])).tolist() == [0, 1]  # and no carry beside it
    assert run.evaluate(50).mean == 1.0


@pytest.mark.long
def test_continuous_actions_are_learned():
    fields = {"lanes": 32, "steps": 20_000, "learning_rate": 0.05, "sigma": 0.1, "hidden": ()}
    run = learned("es", "continuous", weight_decay=0.0, **fields)
    x = np.float32([[-0.8], [0.0], [0.6]])
    np.testing.assert_allclose(run.policy.act(x), x, atol=0.2)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"lanes": 7}, "lanes must be even, .* got 7. Use 8"),
        ({"lanes": 8, "top": 5}, "top must be at most 4, .* got 5. Use fewer, or --lanes 10"),
        ({"shaping": "rank"}, "ranks or returns"),
        ({"optimiser": "adamw"}, "adam or sgd"),
        ({"sigma": 0.0}, "sigma must be 1e-08 or more"),
        ({"lanes": 8, "plan": "all*8", "block": 1}, "lanes must be a multiple of 16 .* got 8"),
    ],
)
def test_what_can_not_work_is_refused(fields, sentence):
    with pytest.raises(RondelError, match=sentence):
        rondel.explain("ars", "CartPole-v1", tuned=False, **fields)


@pytest.mark.long
def test_lanes_inside_of_a_program_can_not_be_started_anew():
    pytest.importorskip("envpool")
    with pytest.raises(RondelError, match="Use envpool:CartPole-v1"):
        rondel.explain("es", "envpool-xla:CartPole-v1", tuned=False)


def test_random_search_is_linear_and_begins_at_zero():
    params = ars.make(ars.Config(standardise=False), SPEC).init(jax.random.key(0)).params
    assert [layer["w"].shape for layer in params] == [(4, 2)]
    assert not any(np.any(x) for x in jax.tree.leaves(params))
