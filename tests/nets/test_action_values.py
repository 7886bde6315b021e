"""What is behind a torso for the values of actions: shapes, and what a dueling network promises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rondel.nets.heads import dueling_head, value_head
from rondel.nets.mlp import encode
from rondel.nets.torso import make_torso
from rondel.ops import random
from rondel.spaces import Box, Discrete, zeros

FLOATS = Box(np.full(5, -1.0, np.float32), np.ones(5, np.float32))
SPACE = {"x": FLOATS, "choice": Discrete(3)}  # 8 numbers


def observations(*batch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(*batch, 5)).astype(np.float32)
    return {"x": x, "choice": rng.integers(0, 3, batch)}


def build(network):
    return jax.jit(network.init)(random.key(0))


def dueling(shared, stream):
    return dueling_head(*make_torso("mlp", SPACE, shared, jax.nn.relu), 4, stream)


@pytest.mark.parametrize(("shared", "stream"), [((), ()), ((), (6,)), ((16,), (6,))])
def test_a_dueling_network_is_value_and_centred_advantages(shared, stream):
    network = dueling(shared, stream)
    params, obs = build(network), observations(2, 3)
    apply = jax.jit(network.apply)
    q = apply(params, obs)
    assert q.shape == (2, 3, 4)
    # Q = V + A - mean A: the mean over actions is V alone, so A's own bias is not seen ...
    shifted = jax.tree.map(lambda x: x, params)
    shifted["advantage"][-1]["b"] += 5.0
    np.testing.assert_allclose(apply(shifted, obs), q, atol=1e-5)
    # ... V's is, by every action alike ...
    shifted = jax.tree.map(lambda x: x, params)
    shifted["value"][-1]["b"] += 5.0
    np.testing.assert_allclose(apply(shifted, obs), q + 5.0, atol=1e-5)
    # ... and without V the mean over actions is 0
    shifted["value"][-1] = jax.tree.map(jnp.zeros_like, shifted["value"][-1])
    advantages = np.asarray(apply(shifted, obs))
    np.testing.assert_allclose(advantages.mean(-1), np.zeros((2, 3)), atol=1e-6)
    assert np.abs(advantages).max() > 0.01


def test_the_streams_of_a_dueling_network_begin_with_their_gains():
    params = build(dueling((16,), (6,)))
    for part, gains in {"torso": [2**0.5], "value": [2**0.5, 1], "advantage": [2**0.5, 1]}.items():
        for layer, gain in zip(params[part], gains, strict=True):
            largest = np.linalg.norm(np.asarray(layer["w"]), 2)
            assert largest == pytest.approx(gain, rel=1e-4)


def test_one_layer_behind_a_torso():
    network = value_head(*make_torso("mlp", SPACE, ()), 4)
    params, obs = build(network), observations(2, 3)
    assert params["torso"] == []
    expected = np.asarray(encode(SPACE, obs)) @ np.asarray(params["q"][0]["w"])
    np.testing.assert_allclose(network.apply(params, obs), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("head", [value_head, dueling_head])
def test_an_image_may_be_what_the_torso_sees(head):
    image = Box(np.zeros((4, 10, 10), np.uint8), np.full((4, 10, 10), 255, np.uint8), "uint8")
    network = head(*make_torso("auto", image), 3)
    params = jax.eval_shape(network.init, random.key(0))
    assert jax.eval_shape(network.apply, params, zeros(image, 2, 5)).shape == (2, 5, 3)
