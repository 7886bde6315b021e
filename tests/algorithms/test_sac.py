"""SAC: its formulas by hand, its gradients against NumPy, its temperature."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control import SPEC, TWO, a_batch, close, mean, policy_of, q_of, random_like, same

from rondel.algorithms import sac
from rondel.errors import RondelError
from rondel.ops import random
from rondel.spaces import Discrete
from rondel.types import EnvSpec


@functools.cache
def build(**fields):
    """An algorithm with its functions jitted, and its first state."""
    small = {"rollout": 4, "hidden": (4,), "capacity": 400, "batch": 64, "warmup": 32}
    algorithm = sac.make(sac.Config(**small | fields), SPEC)
    algorithm = algorithm._replace(
        gradient=jax.jit(algorithm.gradient),
        update=jax.jit(algorithm.update),
        act=jax.jit(algorithm.act, static_argnums=4),
    )
    return algorithm, jax.jit(algorithm.init)(random.key(0))


def test_the_soft_target_by_hand():
    reward, discount = jnp.array([1.0, 1.0]), jnp.array([0.5, 0.0])
    next_q, log_prob = jnp.array([[4.0, 9.0], [2.0, 9.0]]), jnp.array([-3.0, -3.0])
    # 1 + 0.5 * (min(4, 2) + 0.2 * 3) = 2.3; after a termination the reward alone
    target = sac.soft_target(reward, discount, next_q, log_prob, jnp.float32(0.2))
    np.testing.assert_allclose(target, [2.3, 1.0], rtol=1e-6)


def test_the_temperature_rises_where_the_entropy_is_too_low():
    # entropy -log π = 1 with an aim of 2: -0.5 (-1 + 2) = -0.5, which falls as α rises
    loss, slope = jax.value_and_grad(sac.temperature_loss)(jnp.log(0.5), jnp.float32(-1.0), 2.0)
    np.testing.assert_allclose([loss, slope], [-0.5, -0.5], rtol=1e-6)
    # entropy 3, more than enough: -0.5 (-3 + 2) = 0.5
    np.testing.assert_allclose(
        sac.temperature_loss(jnp.log(0.5), jnp.float32(-3.0), 2.0), 0.5, rtol=1e-6
    )


def sampled(policy, obs, normal):
    """Actions and their log densities, straight from the definition."""
    mean, log_std = np.split(policy_of(policy, obs), 2, -1)
    log_std = np.clip(log_std, -10.0, 2.0)
    action = np.tanh(mean + np.exp(log_std) * normal)
    density = -0.5 * normal**2 - log_std - 0.5 * np.log(2 * np.pi)
    return action, (density - np.log(1.0 - action**2)).sum(-1)


def test_the_gradient_is_that_of_the_losses_in_numpy(slopes):
    algorithm, state = build()
    params = random_like(state.params, 0)
    # smaller ones, else some tanh is 1 to the last digit and NumPy's density infinite
    params["policy"] = jax.tree.map(lambda p: 0.3 * p, params["policy"])
    target = random_like(state.target, 1)
    batch = a_batch()
    variables = sac.Variables(params, target)
    grads, weight, _, metrics = algorithm.gradient(variables, batch, random.key(7))
    normal, next_normal = np.float64(random.normal(random.key(7), 128)).reshape(2, 32, 2)
    temperature = np.exp(float(params["log_temperature"]))
    next_action, next_log_prob = sampled(params["policy"], batch.next_obs, next_normal)
    next_q = q_of(target, batch.next_obs, next_action).min(0)
    goal = batch.reward + batch.discount * (next_q - temperature * next_log_prob)

    def critic_loss(critics):
        error = q_of(critics, batch.obs, batch.action) - goal
        return mean(0.5 * (error**2).sum(0), batch.valid)

    def policy_loss(policy):
        action, log_prob = sampled(policy, batch.obs, normal)
        q = q_of(params["critics"], batch.obs, action).min(0)
        return mean(temperature * log_prob - q, batch.valid)

    entropy = -mean(sampled(params["policy"], batch.obs, normal)[1], batch.valid)
    close(grads["critics"], slopes(critic_loss, params["critics"]))
    close(grads["policy"], slopes(policy_loss, params["policy"]))
    # -α (log π + target), the target being -1 for each of the two actions
    close(grads["log_temperature"], temperature * (entropy + 2.0))
    assert float(metrics["entropy"]) == pytest.approx(entropy, rel=1e-4)
    assert float(metrics["loss/critic"]) == pytest.approx(critic_loss(params["critics"]), rel=1e-4)
    assert float(weight) == batch.valid.sum()


def test_an_update_moves_everything_and_the_target_slowly():
    algorithm, state = build(target_rate=0.25)
    grads, *_ = algorithm.gradient(algorithm.learning(state), a_batch(), random.key(0))
    after = algorithm.update(state, grads)
    for name in state.params:
        assert not same(after.params[name], state.params[name])
    expected = jax.tree.map(lambda t, p: 0.75 * t + 0.25 * p, state.target, after.params["critics"])
    close(after.target, expected, rtol=1e-5, atol=1e-7)


def test_a_temperature_may_stay():
    algorithm, state = build(temperature=0.2, temperature_rate=0.0)
    grads, *_ = algorithm.gradient(algorithm.learning(state), a_batch(), random.key(0))
    after = algorithm.update(state, grads)
    assert float(jnp.exp(after.params["log_temperature"])) == pytest.approx(0.2, rel=1e-6)


def test_actions_come_from_the_policy_once_it_is_warm():
    n = 4_000
    algorithm, state = build()
    policy = jax.tree.map(lambda p: 0.3 * p, random_like(state.params["policy"], 0))
    obs = np.full((n, 2), 0.5, np.float32)
    keys = jax.jit(lambda: random.fold(random.key(0)[None], jnp.arange(n)))()
    weights = sac.Weights(policy, jnp.bool_(True))
    middle, deviation = np.split(policy_of(policy, obs[:1]), 2, -1)
    greedy, _, _ = algorithm.act(weights, (), obs, keys, False)
    close(greedy[:1], np.tanh(middle), rtol=1e-5)
    action, _, _ = algorithm.act(weights, (), obs, keys, True)
    before = np.arctanh(np.float64(action))
    # known to deviation / sqrt(4000), 1.6 %, and to 1.1 % of itself
    np.testing.assert_allclose(before.mean(0), middle[0], atol=0.06 * np.exp(deviation).max())
    np.testing.assert_allclose(before.std(0), np.exp(deviation[0]), rtol=0.06)
    anything, _, _ = algorithm.act(weights._replace(warm=jnp.bool_(False)), (), obs, keys, True)
    share, _ = np.histogram(np.asarray(anything), bins=4, range=(-1.0, 1.0))
    np.testing.assert_allclose(share / (2 * n), 0.25, atol=0.02)


def test_discrete_actions_are_refused_with_what_works():
    with pytest.raises(RondelError, match=r"sac needs continuous actions.*test:choice.*dqn"):
        sac.make(sac.Config(), EnvSpec("test:choice", TWO, Discrete(3)))
