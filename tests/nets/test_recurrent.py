"""Cells that remember, against their equations in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rondel.errors import RondelError
from rondel.nets.actor_critic import separate_networks, shared_torso
from rondel.nets.mlp import mlp
from rondel.nets.recurrent import CELLS, make_cell
from rondel.spaces import Box

KEY = jax.random.key(0, impl="threefry2x32")


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def weights(kind):
    """A cell with inputs of width 2 and size 1, all of whose numbers differ: (cell, params)."""
    cell = make_cell(kind, 2, 1)
    like = cell.init(KEY)
    leaves, tree = jax.tree.flatten(like)
    numbers = np.random.default_rng(1).normal(size=sum(x.size for x in leaves)).astype(np.float32)
    parts = np.split(numbers, np.cumsum([x.size for x in leaves])[:-1])
    return cell, jax.tree.unflatten(
        tree, [p.reshape(x.shape) for p, x in zip(parts, leaves, strict=True)]
    )


def affine(params, x, h):
    return (
        x @ np.asarray(params["x"]["w"]) + np.asarray(params["x"]["b"]),
        h @ np.asarray(params["h"]["w"]) + np.asarray(params["h"]["b"]),
    )


X, H, C = np.array([[0.3, -0.8]]), np.array([[0.5]]), np.array([[-0.4]])


def test_gru():
    cell, params = weights("gru")
    (rx, zx, nx), (rh, zh, nh) = (np.split(s, 3, -1) for s in affine(params, X, H))
    r, z = sigmoid(rx + rh), sigmoid(zx + zh)
    expected = (1 - z) * np.tanh(nx + r * nh) + z * H
    carry, y = cell.step(params, jnp.array(H), jnp.array(X))
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    np.testing.assert_array_equal(carry, y)


def test_lstm():
    cell, params = weights("lstm")
    from_x, from_h = affine(params, X, H)
    i, f, g, o = np.split(from_x + from_h, 4, -1)
    c = sigmoid(f + 1) * C + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    (h_got, c_got), y = cell.step(params, (jnp.array(H), jnp.array(C)), jnp.array(X))
    np.testing.assert_allclose(c_got, c, rtol=1e-5)
    np.testing.assert_allclose(h_got, h, rtol=1e-5)
    np.testing.assert_array_equal(y, h_got)


@pytest.mark.parametrize("kind", CELLS)
def test_gates_are_orthogonal_and_episodes_begin_with_nothing(kind):
    cell = make_cell(kind, 5, 4)
    params = cell.init(KEY)
    gates = np.split(
        np.concatenate([params["x"]["w"], params["h"]["w"]]), len(params["x"]["b"]) // 4, 1
    )
    for gate in gates:
        np.testing.assert_allclose(gate.T @ gate, np.eye(4), atol=1e-5)
    assert all((x == 0).all() and x.shape == (3, 4) for x in jax.tree.leaves(cell.start(3)))


def test_an_unknown_memory_gets_a_sentence():
    with pytest.raises(RondelError, match="memory must be none, gru or lstm, got 'rnn'"):
        make_cell("rnn", 1, 1)


def space(n):
    return Box(-np.ones(n, np.float32), np.ones(n, np.float32))


@pytest.mark.parametrize("kind", CELLS)
def test_unrolled_is_step_by_step(kind):
    torso = mlp(space(3), (8,), 6)
    model = shared_torso(torso, 6, 2, make_cell(kind, 6, 5))
    params = model.init(KEY)
    random = np.random.default_rng(0)
    obs = jnp.array(random.normal(size=(7, 4, 3)), jnp.float32)
    first = jnp.array(random.uniform(size=(7, 4)) < 0.3)
    carry = jax.tree.map(lambda x: x + 0.5, model.carry(4))
    judged, carries = model.unroll(params, carry, obs, first)
    for t in range(7):
        begins = first[t][:, None]
        carry = jax.tree.map(lambda s, c, b=begins: jnp.where(b, s, c), model.carry(4), carry)
        jax.tree.map(
            lambda a, b, t=t: np.testing.assert_allclose(a, b[t], rtol=1e-5, atol=1e-6),
            carry,
            carries,
        )
        carry, one = model.step(params, carry, obs[t])
        np.testing.assert_allclose(one.policy, judged.policy[t], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(one.value, judged.value[t], rtol=1e-5, atol=1e-6)


def test_without_memory_rows_may_have_any_axes():
    model = separate_networks(mlp(space(3), (8,), 2), mlp(space(3), (8,), 1))
    params = model.init(KEY)
    obs = jnp.ones((5, 4, 3))
    judged, carries = model.unroll(params, (), obs, None)
    assert (judged.policy.shape, judged.value.shape, carries) == ((5, 4, 2), (5, 4), ())
    carry, one = model.step(params, (), obs[0])
    assert (one.value.shape, carry) == ((4,), ())
    assert not model.recurrent
