"""QT-Opt: the search on known hills, its target and gradient against NumPy, its two targets."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control import SPEC, TWO, a_batch, close, forward, mean, random_like, same

from rondel.algorithms import qtopt
from rondel.errors import RondelError
from rondel.ops import random
from rondel.spaces import Discrete
from rondel.types import EnvSpec


@functools.cache
def build(**fields):
    """An algorithm with its functions jitted, and its first state."""
    small = {"rollout": 4, "hidden": (4,), "capacity": 400, "batch": 64, "warmup": 32}
    algorithm = qtopt.make(qtopt.Config(**small | fields), SPEC)
    algorithm = algorithm._replace(
        label=jax.jit(algorithm.label),
        gradient=jax.jit(algorithm.gradient),
        update=jax.jit(algorithm.update),
        act=jax.jit(algorithm.act, static_argnums=4),
    )
    return algorithm, jax.jit(algorithm.init)(random.key(0))


def keys_of(n, seed=0):
    return random.fold(random.key(seed)[None], jnp.arange(n))


def q_of(params, obs, action):
    return forward(params["q"], np.concatenate([obs, action], -1))[..., 0]


def climbed(top, samples=512, elites=6, iterations=2):
    """What the search finds on hills -|a - top|², one for each row."""

    def height(tried):
        return -((tried - top[:, None]) ** 2).sum(-1)

    search = functools.partial(qtopt.cross_entropy_method, height)
    found, value = search(keys_of(len(top)), top.shape[-1], samples, elites, iterations)
    np.testing.assert_array_equal(value, height(found[:, None])[:, 0])
    return np.asarray(found)


def test_the_search_comes_closer_to_the_top_of_a_hill_with_each_iteration():
    top = np.random.default_rng(1).uniform(-0.9, 0.9, (50, 2)).astype(np.float32)
    first, second, third = (
        np.linalg.norm(climbed(top, iterations=n) - top, axis=-1) for n in (1, 2, 3)
    )
    # 512 points in a square of 2 by 2 are 128 a unit: the nearest is 0.5 / sqrt(128) away, give or
    # take half of that, so the mean of 50 is known to a fourteenth part; four of these
    assert abs(first.mean() - 0.044) < 0.013
    # the best 6 are within sqrt(6 / 128π) = 0.122 of the top, and deviate by half of that, which 6
    # points say is 0.056: then there are 512 / (2π 0.056²) = 26,000 a unit, and the nearest is
    # 0.5 / sqrt(26000) = 0.003 away, 14 times less; twice that where their middle is beside the top
    assert np.median(second) < 0.006
    assert np.median(third) < 0.006 / 7  # once more, for the same reason


def test_the_search_stays_within_what_an_action_can_be():
    beyond = np.full((50, 2), 3.0, np.float32)
    # what is beyond a side is put on it, so more and more of the best are the very corner
    np.testing.assert_array_equal(climbed(beyond, iterations=6), 1.0)


def test_the_target_by_hand():
    """The best action by the slow target is a corner where its slope is the same everywhere."""
    algorithm, _ = build(hidden=(), samples=2_048, iterations=3)

    def line(*w):  # Q(s, a) = w · (s, a) + b; of so many actions some are cut to the very corner
        return {"torso": [], "q": [{"w": np.float32(w)[:, None], "b": np.float32([0.5])}]}

    slow, older = line(1.0, 0.0, 2.0, -1.0), line(1.0, 0.0, 1.0, 1.0)
    batch = a_batch(3)._replace(
        next_obs=np.float32([[1.0, 9.0], [-4.0, 9.0], [2.0, 9.0]]),
        reward=np.float32([1.0, 1.0, 7.0]),
        discount=np.float32([0.5, 0.5, 0.0]),
    )
    variables = qtopt.Variables(None, slow, older)
    made = algorithm.label(variables, batch, keys_of(3))
    # a' = (1, -1): slow s + 3 + 0.5, older s + 0 + 0.5, the lower: 1.5, -3.5, 2.5
    # 1 + 0.5 * 1.5 = 1.75; 1 - 0.5 * 3.5 = -0.75; after a termination the reward alone
    np.testing.assert_array_equal(made.target, [1.75, -0.75, 7.0])
    # the other way round a' = (1, 1) and the lower is that of slow: s + 1 + 0.5
    made = algorithm.label(qtopt.Variables(None, older, slow), batch, keys_of(3))
    np.testing.assert_array_equal(made.target, [1.0 + 0.5 * 2.5, 1.0 - 0.5 * 2.5, 7.0])
    np.testing.assert_array_equal(made.obs, batch.obs)


def test_chances_have_targets_from_zero_to_one():
    config = qtopt.Config(cross_entropy=True)
    batch = a_batch(4)._replace(
        reward=np.float32([0.25, 0.75, 1.5, -0.5]), discount=np.float32([0.5, 0.5, 0.0, 0.0])
    )
    said = jnp.log(jnp.float32([[1.0, 3.0, 1.0, 1.0], [3.0, 3.0, 1.0, 1.0]]))
    # log q / (1 - q) is said: the lower chances are 1/2, 3/4, 1/2, 1/2
    # 0.25 + 0.5 / 2 = 0.5; 0.75 + 0.5 * 3/4 is more than 1; the last are rewards alone
    made = qtopt.target_of(config, batch, said)
    np.testing.assert_allclose(made, [0.5, 1.0, 1.0, 0.0], rtol=1e-6)
    made = qtopt.target_of(qtopt.Config(), batch, said)
    np.testing.assert_allclose(made, [0.25, 0.75 + 0.5 * np.log(3.0), 1.5, -0.5], rtol=1e-6)


@pytest.mark.parametrize("chances", [False, True])
def test_the_gradient_is_that_of_the_loss_in_numpy(chances, slopes):
    algorithm, state = build(cross_entropy=chances)
    params, batch = random_like(state.params, 0), a_batch()
    target = np.random.default_rng(5).uniform(0.0, 1.0, 32).astype(np.float32)
    labelled = qtopt.Labelled(batch.obs, batch.action, target, batch.valid)
    variables = qtopt.Variables(params, None, None)
    grads, weight, _, metrics = algorithm.gradient(variables, labelled, random.key(0))

    def loss(params):
        said = q_of(params, batch.obs, batch.action)
        if not chances:
            return mean(0.5 * (said - target) ** 2, batch.valid)
        q = 1.0 / (1.0 + np.exp(-said))
        return mean(-target * np.log(q) - (1.0 - target) * np.log(1.0 - q), batch.valid)

    close(grads, slopes(loss, params))
    assert float(metrics["loss/critic"]) == pytest.approx(loss(params), rel=1e-5)
    assert float(weight) == batch.valid.sum()


def test_one_target_follows_slowly_and_the_other_is_replaced():
    algorithm, state = build(target_rate=0.25, older_every=2)
    grads = jax.tree.map(jnp.ones_like, state.params)
    one = algorithm.update(state, grads)
    expected = jax.tree.map(lambda t, p: 0.75 * t + 0.25 * p, state.slow, one.params)
    close(one.slow, expected, rtol=1e-6, atol=1e-8)
    assert same(one.older, state.older)
    two = algorithm.update(one, grads)
    assert same(two.older, two.slow)
    three = algorithm.update(two, grads)
    assert same(three.older, two.slow)
    assert not same(three.slow, two.slow)


def test_actions_are_the_best_with_noise_or_any():
    n = 4_000
    algorithm, state = build(noise=0.05, epsilon=0.25)
    params = {"torso": [], "q": random_like(state.params["q"], 0)}
    obs = np.full((n, 2), 0.5, np.float32)
    keys = keys_of(n)
    weights = qtopt.Weights(params, jnp.bool_(True))
    greedy, _, _ = algorithm.act(weights, (), obs, keys, False)
    # of all actions 1 in 65 is better than the best of 64 tried at random, which 4,000 show to a
    # 63rd part of it; a search beats that by more than such luck
    middles = (np.arange(100) + 0.5) / 50 - 1
    grid = np.stack(np.meshgrid(middles, middles), -1).reshape(-1, 2)
    all_worth = np.sort(q_of(params, np.full(grid.shape, 0.5), grid))
    worse = np.searchsorted(all_worth, q_of(params, obs, greedy)) / len(grid)
    assert 1.0 - worse.mean() < 0.9 / 65
    taken, _, _ = algorithm.act(weights, (), obs, keys, True)
    near = (np.abs(taken - greedy) < 0.25).all(-1)  # five deviations
    # three in four, and by chance up to 0.25² of the rest: 0.75 to 0.766, which 4,000 show to
    # sqrt(0.19 / 4000) = 0.007; four of these
    assert 0.722 < near.mean() < 0.794
    anything, _, _ = algorithm.act(weights._replace(warm=jnp.bool_(False)), (), obs, keys, True)
    share, _ = np.histogram(np.asarray(anything), bins=4, range=(-1.0, 1.0))
    np.testing.assert_allclose(share / (2 * n), 0.25, atol=0.02)  # four times 0.43 / sqrt(8000)


def test_what_can_not_work_is_refused_with_what_does():
    with pytest.raises(RondelError, match=r"qtopt needs continuous actions.*test:choice.*dqn"):
        qtopt.make(qtopt.Config(), EnvSpec("test:choice", TWO, Discrete(3)))
    with pytest.raises(RondelError, match="elites must be at most samples=8, got 9"):
        qtopt.Config(samples=8, elites=9)
