"""V-trace at work: on-policy it is A2C, off-policy its loss against NumPy; APPO and its target."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rondel
from marks import few_of
from rondel.algorithms import a2c, appo, impala
from rondel.errors import RondelError
from rondel.ops import random
from rondel.ops.returns import vtrace
from rondel.spaces import Box, Discrete
from rondel.types import EnvSpec

TWO = Box(np.full(2, -1.0, np.float32), np.ones(2, np.float32))
SPEC = EnvSpec("test:discrete", TWO, Discrete(3), lanes=2)
SMALL = {"rollout": 12, "hidden": (3,), "discount": 0.9, "entropy_cost": 0.1}
FREE = {"epochs": 1, "minibatches": 1, "normalise_advantage": False, "clip": 1e6}


@functools.cache
def build(module, **fields):
    algorithm = module.make(module.Config(**{**SMALL, **fields}), SPEC)
    state = jax.jit(algorithm.init)(random.key(0))
    return algorithm, state._replace(params=stirred(state.params, 0))


def stirred(params, seed):
    """Parameters with a policy that is not flat."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda p: jnp.float32(rng.normal(size=p.shape)), params)


def acted(algorithm, params, stream, **fields):
    """A round of a stream, with the log of each action's probability as `params` have it."""
    tr = stream(12, 2).round(0, 12)._replace(carry=algorithm.carry(np.arange(2)))
    config = impala.Config(**SMALL | fields)
    model = impala.make_networks(config, SPEC)[0]
    (out, _), _ = model.unroll(params, tr.carry, tr.obs, tr.first)
    logs = jax.nn.log_softmax(out[:-1])
    log_prob = jnp.take_along_axis(logs, jnp.asarray(tr.action)[..., None], -1)[..., 0]
    return tr._replace(extras=log_prob)


def batch(algorithm, params, tr):
    """A trajectory's items as memory gives them back."""
    items, steps = algorithm.prepare(params, tr)
    assert steps.tolist() == tr.valid.sum(0).tolist()
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), items)


def close(one, two, **tolerance):
    tolerance = {"rtol": 1e-4, "atol": 1e-5} | tolerance
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), one, two)


@pytest.mark.parametrize("memory", few_of(["none", "gru", "lstm"], ["gru"]))
def test_with_the_weights_that_acted_it_is_a2c(stream, memory):
    fields = {"memory": memory, "memory_size": 3}
    one, state = build(impala, trace_lambda=0.8, **fields)
    two, _ = build(a2c, gae_lambda=0.8, **fields)
    tr = acted(one, state.params, stream, **fields)
    assert not tr.valid.all()
    grads, weight, _, metrics = one.gradient(state.params, batch(one, state.params, tr), None)
    expected = two.gradient(state.params, batch(two, state.params, tr), None)
    close(grads, expected[0])
    assert float(weight) == float(expected[1]) == tr.valid.sum()
    assert float(metrics["kl"]) == pytest.approx(0.0, abs=1e-6)


def test_with_older_weights_the_loss_is_that_of_vtrace(stream):
    """Ratios and values are those of the weights that learn; no gradient flows through targets."""
    algorithm, state = build(impala, clip_rho=1.5)
    old = stirred(state.params, 1)
    tr = acted(algorithm, old, stream)
    grads, _, _, metrics = algorithm.gradient(state.params, batch(algorithm, old, tr), None)

    model = impala.make_networks(impala.Config(**SMALL), SPEC)[0]
    (out, value), _ = model.unroll(state.params, (), tr.obs, None)
    logs = jax.nn.log_softmax(out[:-1])
    new = jnp.take_along_axis(logs, jnp.asarray(tr.action)[..., None], -1)[..., 0]
    ratio = np.exp(new - tr.extras)
    assert (ratio > 1.5).any()
    ends = tr.terminated, tr.truncated, tr.valid
    target, advantage = vtrace(ratio, tr.reward, value, *ends, 0.9, clip_rho=1.5)
    v = tr.valid
    policy, critic = -(advantage * new)[v].mean(), 0.5 * ((value[:-1] - target) ** 2)[v].mean()
    entropy = -(jnp.exp(logs) * logs).sum(-1)[v].mean()
    close(
        [metrics[name] for name in ("loss/policy", "loss/value", "entropy", "clipped")],
        [policy, critic, entropy, (ratio > 1.5)[v].mean()],
    )

    def surrogate(params):
        (out, value), _ = model.unroll(params, (), tr.obs, None)
        logs = jax.nn.log_softmax(out[:-1])
        chosen = jnp.take_along_axis(logs, jnp.asarray(tr.action)[..., None], -1)[..., 0]
        gain = advantage * chosen - 0.1 * (jnp.exp(logs) * logs).sum(-1)
        return (0.5 * 0.5 * (value[:-1] - target) ** 2 - gain)[v].mean()

    close(grads, jax.grad(surrogate)(state.params))


AGES = [("none", 0), ("lstm", 0), ("none", 3)]


@pytest.mark.parametrize(("memory", "lag"), few_of(AGES, [("none", 3)]))
def test_what_is_learned_from_is_as_old_as_the_lag(memory, lag):
    run = rondel.start(
        "impala", "probe:memory", tuned=False, steps=500, lanes=8, rollout=8, learning_rate=0.05,
        hidden=(8,), memory=memory, memory_size=8, lag=lag, on="inline",
    )  # fmt: skip
    behind = [report.metrics["kl"] for report in run]
    assert len(behind) > 5
    assert behind[0] == pytest.approx(0.0, abs=1e-6)
    assert max(behind) > 1e-3 if lag else max(behind) < 1e-6


@functools.cache
def pair():
    algorithm, state = build(appo, **FREE)
    return algorithm, state._replace(target=state.params)


def test_appo_with_a_target_that_is_the_policy_is_impala(stream):
    algorithm, state = pair()
    other, _ = build(impala, trace_lambda=0.95)
    old = stirred(state.params, 1)
    rounds = batch(algorithm, old, acted(algorithm, old, stream))
    grads = algorithm.gradient(algorithm.learning(state), rounds, None)[0]
    close(grads, other.gradient(state.params, rounds, None)[0])


def test_appo_standardises_its_advantages(stream):
    alone = {"epochs": 1, "minibatches": 1, "clip": 1e6, "entropy_cost": 0.0, "value_cost": 0.0}
    algorithm, state = build(appo, **alone)
    rounds = batch(algorithm, state.params, acted(algorithm, state.params, stream))
    grads = algorithm.gradient(appo.Variables(state.params, state.params), rounds, None)[0]
    config = appo.Config(**SMALL | alone)
    model, dist = impala.make_networks(config, SPEC)
    rounds = impala.time_first(rounds)
    valid = np.asarray(rounds.valid)
    judged = impala.judge(model, dist, state.params, rounds)
    advantage = np.asarray(impala.corrected(config, judged, rounds).advantage)
    z = (advantage - advantage[valid].mean()) / advantage[valid].std()

    def loss(params):  # of the plain policy gradient: nothing is clipped, no ratio differs from 1
        log_prob = impala.judge(model, dist, params, rounds).log_prob
        return -jnp.where(valid, z * log_prob, 0.0).sum() / valid.sum()

    close(grads["policy"], jax.grad(loss)(state.params)["policy"], rtol=1e-3)


def test_appo_has_its_targets_from_the_target(stream):
    """Its value loss is that of the target's V-trace, whatever the policy that learns is."""
    algorithm, state = pair()
    other, _ = build(impala, trace_lambda=0.95)
    old = stirred(state.params, 1)
    tr = acted(algorithm, old, stream)
    rounds = batch(algorithm, old, tr)
    moved = stirred(state.params, 2)
    moved["critic"] = state.params["critic"]  # as the target sees it
    metrics = algorithm.gradient(appo.Variables(moved, state.params), rounds, None)[3]
    expected = other.gradient(state.params, rounds, None)[3]
    assert float(metrics["loss/value"]) == pytest.approx(float(expected["loss/value"]), rel=1e-5)
    assert float(metrics["loss/policy"]) != pytest.approx(float(expected["loss/policy"]), rel=1e-2)


def test_appo_gains_nothing_by_moving_beyond_the_clip(stream):
    algorithm, state = build(appo, **{**FREE, "clip": 0.1, "entropy_cost": 0.0})
    tr = acted(algorithm, state.params, stream)
    tr = tr._replace(reward=np.full((12, 2), 1e3, np.float32), action=np.zeros((12, 2), np.int32))
    rounds = batch(algorithm, state.params, tr)  # all that was done was worth it
    more = {**state.params, "policy": [*state.params["policy"]]}
    more["policy"][-1] = {**more["policy"][-1], "b": more["policy"][-1]["b"] + jnp.eye(3)[0] * 9}
    for params, still in ((more, True), (state.params, False)):
        variables = appo.Variables(params, state.params)
        grads, _, _, metrics = algorithm.gradient(variables, rounds, None)
        largest = max(float(jnp.abs(g).max()) for g in jax.tree.leaves(grads["policy"]))
        assert (largest == 0.0) == (float(metrics["clipped"]) == 1.0) == still


@pytest.mark.parametrize(("rate", "share"), [(1.0, 1.0), (0.25, 0.25)])
def test_the_target_moves_every_so_many_updates(rate, share):
    algorithm, state = build(appo, target_every=3, target_rate=rate)
    state = state._replace(target=jax.tree.map(jnp.zeros_like, state.params))
    grads = stirred(state.params, 3)
    for _ in range(2):
        state = algorithm.update(state, grads)
        assert not any(np.asarray(x).any() for x in jax.tree.leaves(state.target))
    state = algorithm.update(state, grads)
    close(state.target, jax.tree.map(lambda p: share * p, state.params))


def test_minibatches_are_of_whole_lanes():
    with pytest.raises(RondelError, match=r"minibatches must divide the 8 rows .*, got 3"):
        rondel.start("impala", "CartPole-v1", lanes=8, minibatches=3)


def test_a2c_takes_no_lag_and_a3c_some():
    with pytest.raises(RondelError, match="The lag of a2c must be 0, got"):
        rondel.start("a2c", "CartPole-v1", plan="actor*2 | learner", lag=1, lanes=16, on="inline")
    rondel.start("a3c", "CartPole-v1", plan="actor*2 | learner", lag=1, lanes=16, on="inline")
