"""Perceptrons: shapes, and how they begin."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rondel.nets.mlp import forward, mlp
from rondel.ops import random
from rondel.spaces import Box, Discrete

FLOATS = Box(np.full(5, -1.0, np.float32), np.ones(5, np.float32))
SPACE = {"x": FLOATS, "choice": Discrete(3)}  # 8 numbers


def observations(*batch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(*batch, 5)).astype(np.float32)
    return {"x": x, "choice": rng.integers(0, 3, batch)}


def build(network, seed=0):
    return jax.jit(network.init)(random.key(seed))


@pytest.mark.parametrize("batch", [(), (4,), (2, 4)])
@pytest.mark.parametrize("hidden", [(), (16,), (16, 12)])
def test_outputs_of_any_batch(hidden, batch):
    network = mlp(SPACE, hidden, 3)
    params = jax.eval_shape(network.init, random.key(0))
    assert [layer["w"].shape for layer in params] == [*zip((8, *hidden), (*hidden, 3), strict=True)]
    out = jax.eval_shape(network.apply, params, observations(*batch))
    assert out.shape == (*batch, 3)


def test_forward_by_hand():
    params = [
        {"w": jnp.array([[1.0, -1.0], [2.0, 0.5]]), "b": jnp.array([0.5, 0.0])},
        {"w": jnp.array([[3.0], [1.0]]), "b": jnp.array([-1.0])},
    ]
    # x = (1, 2): hidden (1 + 4 + 0.5, -1 + 1 + 0) = (5.5, 0); relu keeps both;
    # 3 * 5.5 + 0 - 1 = 15.5. x = (-1, -2): (-4.5, 0) becomes (0, 0), so -1: the end has none
    out = forward(params, jnp.array([[1.0, 2.0], [-1.0, -2.0]]), jax.nn.relu)
    assert out.tolist() == [[15.5], [-1.0]]


@pytest.mark.parametrize("last_scale", [1.0, 0.01])
def test_layers_begin_orthogonal_with_their_gains(last_scale):
    params = build(mlp(SPACE, (32, 6), 4, last_scale=last_scale))
    gains = [np.sqrt(2), np.sqrt(2), last_scale]
    for layer, gain in zip(params, gains, strict=True):
        w = np.asarray(layer["w"], np.float64) / gain
        gram = w @ w.T if w.shape[0] < w.shape[1] else w.T @ w
        np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-5)
        assert (np.asarray(layer["b"]) == 0.0).all()


def test_layers_begin_differently_from_each_other_and_from_key_to_key():
    network = mlp(FLOATS, (5, 5), 5)
    one, two = build(network), build(network, seed=1)
    weights = [np.asarray(layer["w"]) for layer in (*one, *two)]
    for i, w in enumerate(weights):
        assert all(
            np.abs(w / np.linalg.norm(w) - v / np.linalg.norm(v)).max() > 0.1 for v in weights[:i]
        )


def test_orthogonal_matrices_are_drawn_without_a_preferred_sign():
    """QR alone has a fixed sign in its diagonal; Mezzadri, arXiv math-ph/0609050."""
    init = jax.jit(jax.vmap(mlp(FLOATS, (), 5).init))
    keys = random.fold(random.key(0)[None], jnp.arange(500))
    w = np.asarray(init(keys)[0]["w"])
    # of 500 entries with mean 0 and variance 1/5 the mean has a deviation of 0.02
    assert np.abs(w.mean(0)).max() < 0.08
    np.testing.assert_allclose((w**2).mean(0), np.full((5, 5), 0.2), atol=0.05)
