"""PPO: its formulas by hand, its gradient against NumPy, its gates one by one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import rondel
from rondel.algorithms import ppo
from rondel.ops import random
from rondel.spaces import MASK, Box, Discrete, MultiBinary
from rondel.types import EnvSpec

TWO = Box(np.full(2, -1.0, np.float32), np.ones(2, np.float32))
SPECS = {
    "discrete": EnvSpec("test:discrete", TWO, Discrete(3), lanes=2),
    "continuous": EnvSpec("test:continuous", TWO, TWO, lanes=2),
    "masked": EnvSpec("test:masked", {"x": TWO, MASK: MultiBinary((3,))}, Discrete(3), lanes=2),
}


@functools.cache
def build(kind="discrete", **fields):
    """An algorithm with its functions jitted, and its first state."""
    config = ppo.Config(**{"rollout": 4, "hidden": (3,), **fields})
    algorithm = ppo.make(config, SPECS[kind])
    algorithm = algorithm._replace(
        gradient=jax.jit(algorithm.gradient),
        update=jax.jit(algorithm.update),
        absorb=jax.jit(algorithm.absorb),
        prepare=jax.jit(algorithm.prepare),
        act=jax.jit(algorithm.act, static_argnums=4),
    )
    return algorithm, jax.jit(algorithm.init)(random.key(0))


def test_clipped_surrogate_by_hand():
    ratio = jnp.array([1.0, 1.5, 1.5, 0.5, 0.5, 1.1])
    advantage = jnp.array([2.0, 2.0, -2.0, 2.0, -2.0, -3.0])
    # 1 * 2; min(3, 1.2 * 2) = 2.4; min(-3, -2.4) = -3: moving away costs without bound;
    # min(1, 0.8 * 2) = 1: moving back does too; min(-1, -1.6) = -1.6; 1.1 * -3, not clipped
    expected = [2.0, 2.4, -3.0, 1.0, -1.6, -3.3]
    np.testing.assert_allclose(ppo.clipped_surrogate(ratio, advantage, 0.2), expected, rtol=1e-6)


def test_clipping_takes_the_gradient_only_where_moving_on_would_profit():
    slope = jax.vmap(jax.grad(lambda r, a: ppo.clipped_surrogate(r, a, 0.2)))
    ratio, advantage = jnp.array([1.5, 1.5, 0.5, 0.5]), jnp.array([2.0, -2.0, 2.0, -2.0])
    assert slope(ratio, advantage).tolist() == [0.0, -2.0, 2.0, 0.0]


def test_value_loss_by_hand():
    value, old, target = jnp.array([3.0, 3.0]), jnp.array([1.0, 2.8]), jnp.array([2.0, 5.0])
    # (3 - 2)^2 / 2 and (3 - 5)^2 / 2
    assert ppo.value_loss(value, old, target, None).tolist() == [0.5, 2.0]
    # the first is cut to 1 + 0.5 = 1.5: max(0.5, (1.5 - 2)^2 / 2 = 0.125); the second is not cut
    assert ppo.value_loss(value, old, target, 0.5).tolist() == [0.5, 2.0]
    # cut to 1.5, with target 3: max(0, (1.5 - 3)^2 / 2 = 1.125)
    assert float(ppo.value_loss(value[:1], old[:1], value[:1], 0.5)[0]) == 1.125


def forward(layers, x):
    for i, layer in enumerate(layers):
        x = (np.tanh(x) if i else x) @ layer["w"] + layer["b"]
    return x


def log_prob_and_entropy(params, obs, action):
    """Of the policy, from scratch."""
    out = forward(params["policy"], obs["x"] if isinstance(obs, dict) else obs)
    if "log_std" in params:
        deviation = np.exp(params["log_std"])
        density = np.exp(-(((action - out) / deviation) ** 2) / 2) / np.sqrt(2 * np.pi) / deviation
        entropy = np.log(deviation * np.sqrt(2 * np.pi * np.e)).sum()
        return np.log(density).sum(-1), np.full(len(out), entropy)
    p = np.exp(out) * (obs[MASK] if isinstance(obs, dict) else 1.0)
    p = p / p.sum(-1, keepdims=True)
    logs = np.log(np.where(p > 0, p, 1.0))
    return logs[np.arange(len(p)), action], -(p * logs).sum(-1)


def loss(params, rows, clip, value_clip, value_cost, entropy_cost):
    """The whole loss in float64, row by row as the papers have it."""
    log_prob, entropy = log_prob_and_entropy(params, rows.obs, rows.action)
    v = rows.valid
    advantage = (rows.advantage - rows.advantage[v].mean()) / rows.advantage[v].std()
    ratio = np.exp(log_prob - rows.log_prob)
    gain = np.minimum(ratio * advantage, np.clip(ratio, 1 - clip, 1 + clip) * advantage)
    obs = rows.obs["x"] if isinstance(rows.obs, dict) else rows.obs
    value, target = forward(params["critic"], obs)[:, 0], rows.value + rows.advantage
    near = np.clip(value, rows.value - value_clip, rows.value + value_clip)
    error = np.maximum((value - target) ** 2, (near - target) ** 2) / 2
    return -gain[v].mean() + value_cost * error[v].mean() - entropy_cost * entropy[v].mean()


def minibatch(kind, params, n=24):
    """Rows whose ratios lie within the clip, beyond it and far from its corners."""
    rng = np.random.default_rng(5)
    obs = rng.normal(size=(n, 2))
    action = rng.normal(size=(n, 2)) if kind == "continuous" else rng.integers(0, 3, n)
    if kind == "masked":
        mask = rng.integers(0, 2, (n, 3))
        mask[np.arange(n), action] = 1
        obs = {"x": obs, MASK: mask}
    log_prob, _ = log_prob_and_entropy(params, obs, action)
    shift = rng.choice([-0.6, -0.1, 0.1, 0.6], n)
    value = rng.normal(size=n)
    valid = rng.random(n) < 0.7
    return ppo.Rows(obs, action, log_prob + shift, value, rng.normal(size=n), valid)


def to_jax(tree):
    small = {"float64": np.float32, "int64": np.int32}
    return jax.tree.map(lambda x: np.asarray(x, small.get(x.dtype.name)), tree)


COSTS = {"clip": 0.2, "value_clip": 0.3, "value_cost": 0.7, "entropy_cost": 0.1}


@pytest.mark.parametrize("kind", SPECS)
def test_the_gradient_is_that_of_the_loss_in_numpy(kind):
    algorithm, state = build(kind, **COSTS)
    # larger than at first, so that the policy is not flat
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda p: rng.normal(size=p.shape) * 0.7, state.params)
    rows = minibatch(kind, params)
    (grads, kl), weight, feedback, metrics = algorithm.gradient(
        to_jax(params), to_jax(rows), random.key(0)
    )
    leaves, tree = jax.tree.flatten(params)
    for i, got in enumerate(jax.tree.leaves(grads)):
        slopes = np.zeros(leaves[i].size)
        for k in range(leaves[i].size):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [leaf.copy() for leaf in leaves]
                moved[i].reshape(-1)[k] += step
                ends.append(loss(jax.tree.unflatten(tree, moved), rows, **COSTS))
            slopes[k] = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(got.reshape(-1), slopes, rtol=1e-3, atol=1e-5)
    assert float(weight) == rows.valid.sum()
    assert feedback == ()
    log_ratio = log_prob_and_entropy(params, rows.obs, rows.action)[0] - rows.log_prob
    log_ratio = log_ratio[rows.valid]
    expected = (np.exp(log_ratio) - 1 - log_ratio).mean()
    assert float(kl) == pytest.approx(expected, rel=1e-4)
    # shifts of 0.6 are beyond the clip: |exp(±0.6) - 1| > 0.2; those of 0.1 are not
    assert float(metrics["clipped"]) == pytest.approx((np.abs(log_ratio) > 0.3).mean())


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
def test_rows_that_are_not_valid_have_no_influence(kind):
    algorithm, state = build(kind, **COSTS)
    rows = to_jax(minibatch(kind, jax.tree.map(np.asarray, state.params)))
    odd = rows._replace(
        obs=rows.obs * 50 + 3,
        action=rows.action * 0,
        log_prob=rows.log_prob - 2,
        value=rows.value + 1e4,
        advantage=rows.advantage * 1e4,
    )

    def mix(good, bad):
        valid = rows.valid.reshape(-1, *[1] * (good.ndim - 1))
        return np.where(valid, good, bad).astype(good.dtype)

    mixed = jax.tree.map(mix, rows, odd)._replace(valid=rows.valid)
    one = algorithm.gradient(state.params, rows, random.key(0))
    two = algorithm.gradient(state.params, mixed, random.key(0))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), one, two)


def test_a_minibatch_without_a_valid_row_moves_nothing():
    algorithm, state = build(**COSTS)
    rows = to_jax(minibatch("discrete", jax.tree.map(np.asarray, state.params)))
    rows = rows._replace(valid=np.zeros_like(rows.valid))
    (grads, kl), weight, _, _ = algorithm.gradient(state.params, rows, random.key(0))
    assert float(weight) == float(kl) == 0.0
    assert all((np.asarray(g) == 0.0).all() for g in jax.tree.leaves(grads))


def test_advantages_are_normalised_over_valid_rows_or_not_at_all():
    """With ratio 1 the policy loss is minus the mean advantage."""
    for normalise, expected in ((True, 0.0), (False, -(1 + 2 + 6) / 3)):
        algorithm, state = build(normalise_advantage=normalise)
        obs = np.ones((4, 2), np.float32)
        action, _, log_prob = algorithm.act(state.params, (), obs, random.key(0)[None], False)
        advantage = np.array([1.0, 2.0, 6.0, 99.0], np.float32)
        valid = np.array([True, True, True, False])
        rows = ppo.Rows(obs, action, log_prob, np.zeros(4, np.float32), advantage, valid)
        metrics = algorithm.gradient(state.params, rows, random.key(0))[3]
        assert float(metrics["loss/policy"]) == pytest.approx(expected, abs=1e-6)
        assert float(metrics["kl"]) == pytest.approx(0.0, abs=1e-6)
        # the value loss is not normalised: (0 - target)^2 / 2 with target = value + advantage
        critic = float(metrics["loss/value"])
        value = forward(jax.tree.map(np.asarray, state.params["critic"]), np.ones((1, 2)))[0, 0]
        assert critic == pytest.approx(((value - np.array([1, 2, 6])) ** 2).mean() / 2, rel=1e-5)


def test_prepare_gives_advantages_and_the_values_that_the_acting_weights_saw(stream):
    algorithm, state = build(discount=0.9, gae_lambda=0.8)
    tr = stream(8, 2)
    tr = tr.round(1, 4, extras=tr.log_prob)
    items, steps = algorithm.prepare(state.params, tr)
    params = jax.tree.map(np.asarray, state.params)
    value = forward(params["critic"], tr.obs.astype(np.float64))[..., 0]
    advantage = np.zeros((5, 2))
    for t in reversed(range(4)):
        after = np.where(tr.terminated[t], 0.0, value[t + 1])  # a time limit still bootstraps
        done = tr.terminated[t] | tr.truncated[t]
        delta = tr.reward[t] + 0.9 * after - value[t]
        advantage[t] = np.where(tr.valid[t], delta + 0.72 * ~done * advantage[t + 1], 0.0)
    assert not tr.valid.all()
    np.testing.assert_allclose(items.advantage, advantage[:4].T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(items.value, value[:4].T, rtol=1e-4, atol=1e-5)
    assert (np.asarray(items.obs) == tr.obs[:4].swapaxes(0, 1)).all()
    assert (np.asarray(items.log_prob) == tr.extras.T).all()
    assert (np.asarray(items.valid) == tr.valid.T).all()
    assert steps.tolist() == tr.valid.sum(0).tolist()


def test_the_first_minibatch_sees_the_policy_that_acted():
    """One draw a round, so what is reported is the first: its ratio is 1 but for rounding.

    With normalisation it is so only if learning sees the statistics that acting saw.
    """
    run = rondel.start(
        "ppo", "probe:continuous", tuned=False, steps=200, lanes=8, rollout=8, epochs=1,
        minibatches=1, learning_rate=0.05, hidden=(8,), normalise_observations=True,
    )  # fmt: skip
    reports = list(run)
    assert len(reports) > 3
    assert abs(reports[-1].metrics["entropy"] - reports[0].metrics["entropy"]) > 0.01  # it moved
    for report in reports:
        assert abs(report.metrics["kl"]) < 1e-6
        assert report.metrics["clipped"] == 0.0


def some_grads(state, size=1.0, seed=0):
    rng = np.random.default_rng(seed)
    noise = jax.tree.map(lambda p: rng.normal(size=p.shape).astype(np.float32), state.params)
    norm = np.sqrt(sum((g**2).sum() for g in jax.tree.leaves(noise)))
    return jax.tree.map(lambda g: g * np.float32(size / norm), noise)


def equal(one, two):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_beyond_the_target_kl_nothing_moves_until_the_next_round():
    algorithm, state = build(target_kl=0.01)
    grads = some_grads(state)
    moved = algorithm.update(state, (grads, jnp.float32(0.0149)))
    assert not equal(moved.params, state.params)
    assert not bool(moved.stopped)
    stopped = algorithm.update(moved, (grads, jnp.float32(0.0151)))
    assert equal((stopped.params, stopped.opt_state), (moved.params, moved.opt_state))
    later = algorithm.update(stopped, (grads, jnp.float32(0.0)))  # kl is fine again: too late
    assert equal((later.params, later.opt_state), (moved.params, moved.opt_state))
    next_round = algorithm.absorb(later, jnp.array([4, 4]))
    again = algorithm.update(next_round, (grads, jnp.float32(0.0)))
    assert not equal(again.params, moved.params)
    assert equal(again.params, algorithm.update(moved, (grads, jnp.float32(0.0))).params)


def test_without_a_target_kl_no_kl_stops_anything():
    algorithm, state = build()
    moved = algorithm.update(state, (some_grads(state), jnp.float32(1e6)))
    assert not equal(moved.params, state.params)


def test_the_step_size_falls_in_a_line_to_zero():
    algorithm, state = build(anneal_steps=1000)
    change = {}
    for steps in (0, 500, 1000, 1500):
        at = algorithm.absorb(state, jnp.array([steps, 0]))
        after = algorithm.update(at, (some_grads(state), jnp.float32(0.0)))
        change[steps] = jax.tree.map(lambda a, b: np.asarray(a - b), after.params, state.params)
    jax.tree.map(
        lambda whole, half: np.testing.assert_allclose(half, whole / 2, rtol=1e-3, atol=1e-7),
        change[0], change[500],
    )  # fmt: skip
    # Adam's first step is the step size, whatever the gradient
    assert np.abs(change[0]["policy"][0]["w"]) == pytest.approx(1e-3, rel=1e-2)
    for steps in (1000, 1500):
        assert all((x == 0.0).all() for x in jax.tree.leaves(change[steps]))


def test_steps_are_counted_over_rounds_no_further_than_needed():
    algorithm, state = build(anneal_steps=1000)
    for total in (600, 1000, 1000):
        state = algorithm.absorb(state, jnp.array([250, 350]))
        assert int(state.steps) == total


def test_gradients_are_scaled_down_to_the_greatest_norm():
    algorithm, state = build(max_grad_norm=0.5)
    for size, norm in ((8.0, 0.5), (0.25, 0.25)):
        grads = some_grads(state, size)
        after = algorithm.update(state, (grads, jnp.float32(0.0)))
        # Adam's first moment is 0.1 times the gradient that came through
        through = optax.tree.get(after.opt_state, "mu")["small"] / 0.1
        assert np.linalg.norm(through) == pytest.approx(norm, rel=1e-5)
        flat = np.concatenate([np.ravel(g) for g in jax.tree.leaves(grads)])
        np.testing.assert_allclose(through, flat * (norm / size), rtol=1e-4, atol=1e-7)


def test_actions_that_are_not_allowed_are_not_taken():
    algorithm, state = build("masked")
    params = jax.tree.map(lambda p: p + 0.0, state.params)
    params["policy"][-1]["b"] = jnp.array([9.0, 0.0, 0.0])  # it would like the first
    n = 512
    mask = np.tile(np.array([[0, 1, 1], [0, 0, 1]], np.int8), (n // 2, 1))
    obs = {"x": np.zeros((n, 2), np.float32), MASK: mask}
    keys = jax.jit(lambda: random.fold(random.key(0)[None], jnp.arange(n)))()
    greedy, _, _ = algorithm.act(params, (), obs, keys, False)
    sampled, _, log_prob = algorithm.act(params, (), obs, keys, True)
    for action in (greedy, sampled):
        assert mask[np.arange(n), np.asarray(action)].all()
    # one choice left: log 1; two, equally likely: log 1/2
    np.testing.assert_allclose(log_prob[1::2], 0.0, atol=1e-6)
    np.testing.assert_allclose(log_prob[::2], np.log(0.5), atol=1e-2)


def test_a_continuous_policy_says_how_likely_its_actions_were():
    algorithm, state = build("continuous")
    obs = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32)
    keys = jax.jit(lambda: random.fold(random.key(0)[None], jnp.arange(64)))()
    action, _, log_prob = algorithm.act(state.params, (), obs, keys, True)
    params = jax.tree.map(np.asarray, state.params)
    np.testing.assert_allclose(
        log_prob, log_prob_and_entropy(params, obs, np.asarray(action))[0], rtol=1e-4
    )
    greedy, _, _ = algorithm.act(state.params, (), obs, keys, False)
    np.testing.assert_allclose(greedy, forward(params["policy"], obs), atol=1e-5)
    assert np.std(np.asarray(action) - np.asarray(greedy)) == pytest.approx(1.0, abs=0.2)
