"""Policies and critics of continuous actions, behind any torso."""

import jax
import jax.numpy as jnp
import numpy as np

from rondel.nets.heads import ensemble, make_critic, make_policy
from rondel.nets.mlp import encode
from rondel.nets.torso import make_torso
from rondel.ops import random
from rondel.spaces import Box, Discrete, zeros

FLOATS = Box(np.full(5, -1.0, np.float32), np.ones(5, np.float32))
SPACE = {"x": FLOATS, "choice": Discrete(3)}  # 8 numbers
IMAGE = Box(np.zeros((4, 10, 10), np.uint8), np.full((4, 10, 10), 255, np.uint8), "uint8")


def observations(*batch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(*batch, 5)).astype(np.float32)
    return {"x": x, "choice": rng.integers(0, 3, batch)}


def test_a_critic_sees_observation_and_action_alike():
    network = make_critic(*make_torso("auto", SPACE, ()), 2, ())
    params = jax.jit(network.init)(random.key(0))
    assert params["torso"] == []
    obs, action = observations(2, 3), np.full((2, 3, 2), 0.5, np.float32)
    seen = np.concatenate([encode(SPACE, obs), action], -1)
    expected = (seen @ np.asarray(params["q"][0]["w"]))[..., 0]
    np.testing.assert_allclose(network.apply(params, (obs, action)), expected, rtol=1e-5)


def test_a_critic_judges_several_actions_for_what_is_seen_once():
    network = make_critic(*make_torso("auto", SPACE, ()), 2, (8,))
    params = jax.jit(network.init)(random.key(0))
    obs = observations(3)
    action = np.random.default_rng(1).uniform(-1.0, 1.0, (3, 4, 2)).astype(np.float32)
    judged = network.apply(params, (obs, action))
    one_by_one = [network.apply(params, (obs, action[:, i])) for i in range(4)]
    np.testing.assert_allclose(judged, np.stack(one_by_one, 1), rtol=1e-5, atol=1e-6)


def test_a_policy_begins_in_the_middle():
    network = make_policy(*make_torso("auto", SPACE, ()), 2, (16,))
    params = jax.jit(network.init)(random.key(0))
    out = network.apply(params, observations(2, 3))
    assert out.shape == (2, 3, 2)
    assert 0.0 < np.abs(out).max() < 0.1


def test_several_networks_are_each_for_itself():
    one = make_critic(*make_torso("auto", SPACE, ()), 2, (4,))
    network = ensemble(one, 3)
    params = jax.jit(network.init)(random.key(0))
    pair = observations(6), jnp.zeros((6, 2))
    q = network.apply(params, pair)
    assert q.shape == (3, 6)
    for i, each in enumerate(q):
        alone = one.apply(jax.tree.map(lambda x, i=i: x[i], params), pair)
        np.testing.assert_allclose(each, alone, rtol=1e-5, atol=1e-6)
    assert np.abs(q[0] - q[1]).max() > 0.01


def test_an_image_may_be_what_they_see():
    seen = make_torso("auto", IMAGE, ())
    for network, given in (
        (make_critic(*seen, 2, (8,)), (zeros(IMAGE, 2, 5), zeros(FLOATS, 2, 5)[..., :2])),
        (make_policy(*seen, 4, (8,)), zeros(IMAGE, 2, 5)),
    ):
        params = jax.eval_shape(network.init, random.key(0))
        assert jax.eval_shape(network.apply, params, given).shape[:2] == (2, 5)
