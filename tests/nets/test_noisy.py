"""Noisy layers: their equation in NumPy, and noise that depends on keys alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rondel.nets.heads import dueling_head
from rondel.nets.mlp import forward
from rondel.nets.noisy import with_noise, with_spread
from rondel.nets.torso import make_torso
from rondel.ops import random
from rondel.spaces import Box

SPACE = Box(np.full(5, -1.0, np.float32), np.ones(5, np.float32))
OBS = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def noisy():
    torso = make_torso("mlp", SPACE, (6,), jax.nn.relu)
    network = dueling_head(*torso, 3, (7,), noise=0.5)
    return network, jax.jit(network.init)(random.key(0))


def keys(n):
    return random.fold(random.key(1)[None], jnp.arange(n))


def test_a_noisy_layer_is_the_equation_multiplied_out():
    layer = {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.array([1.0, 0.0, -1.0])}
    (layer,) = with_spread([layer], 0.5)
    # σ0 / √inputs
    np.testing.assert_allclose(layer["w_spread"], np.full((2, 3), 0.5 / 2**0.5))
    np.testing.assert_allclose(layer["b_spread"], np.full(3, 0.5 / 2**0.5))
    layer["w_spread"] = layer["w_spread"] * jnp.arange(6.0).reshape(2, 3)
    (drawn,) = with_noise([layer], random.key(3))
    left, right = np.asarray(drawn["noise_in"]), np.asarray(drawn["noise_out"])
    w = layer["w"] + layer["w_spread"] * np.outer(left, right)
    b = layer["b"] + layer["b_spread"] * right[0]
    x = np.array([[1.0, -2.0], [0.5, 4.0]], np.float32)
    got = forward([drawn], x, jax.nn.relu)
    np.testing.assert_allclose(got, x @ np.asarray(w) + np.asarray(b), rtol=1e-5)


def test_noise_is_the_signed_root_of_a_normal_number():
    (layer,) = with_spread([{"w": jnp.zeros((500, 500)), "b": jnp.zeros(500)}], 0.5)
    (drawn,) = with_noise([layer], random.key(0))
    noise = np.concatenate([drawn["noise_in"][0], drawn["noise_out"][0]])
    normal = np.sign(noise) * noise**2
    assert abs(normal.mean()) < 0.1
    assert normal.std() == pytest.approx(1.0, abs=0.1)
    # E f(x)^2 = E |x| = √(2 / π)
    assert (noise**2).mean() == pytest.approx((2 / np.pi) ** 0.5, abs=0.08)


def test_without_a_draw_a_network_is_its_means(noisy):
    network, params = noisy
    silent = jax.tree.map(lambda x: x, params)
    for part in ("value", "advantage"):
        for layer in silent[part]:
            layer["w_spread"], layer["b_spread"] = 0 * layer["w_spread"], 0 * layer["b_spread"]
    loud = network.apply(with_noise(silent, keys(4)), OBS)
    np.testing.assert_allclose(network.apply(params, OBS), loud, atol=1e-6)


def test_a_row_has_the_noise_of_its_key(noisy):
    network, params = noisy
    q = network.apply(with_noise(params, keys(4)), OBS)
    assert np.abs(np.asarray(q - network.apply(params, OBS))).min() > 1e-4
    swapped = network.apply(with_noise(params, keys(4)[::-1]), OBS[::-1])
    np.testing.assert_allclose(swapped[::-1], q, atol=1e-5)
    same = network.apply(with_noise(params, keys(4)), np.tile(OBS[:1], (4, 1)))
    assert len(np.unique(np.asarray(same)[:, 0])) == 4


def test_one_key_is_for_all_rows_and_each_draw_is_another(noisy):
    network, params = noisy
    rows = np.tile(OBS[:1], (4, 1))
    first, again, other = (
        np.asarray(network.apply(with_noise(params, random.key(5), nth), rows)) for nth in (0, 0, 1)
    )
    np.testing.assert_allclose(first, np.tile(first[:1], (4, 1)), atol=1e-6)
    assert (first == again).all()
    assert np.abs(first - other).min() > 1e-4


def test_layers_of_a_network_do_not_share_their_noise(noisy):
    _, params = noisy
    drawn = with_noise(params, random.key(5))
    ins = [layer["noise_in"][0, :6] for part in ("value", "advantage") for layer in drawn[part]]
    assert len({tuple(np.asarray(x).tolist()) for x in ins}) == 4
    assert "noise_in" not in drawn["torso"][0]
