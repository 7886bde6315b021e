import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rondel.nets.mlp import matrix_product

SHAPES = [((7, 3), 5), ((7, 5), 3), ((2, 4, 3), 3), ((3,), 2), ((6, 4), 1)]


@pytest.mark.parametrize(("rows", "outputs"), SHAPES)
def test_a_product_and_its_gradients_are_those_of_matmul(rows, outputs):
    x, w, weights = (
        jax.random.normal(jax.random.key(i), shape)
        for i, shape in enumerate([rows, (rows[-1], outputs), (*rows[:-1], outputs)])
    )

    def loss(multiply, x, w):
        return (weights * jnp.tanh(multiply(x, w))).sum()

    for argument in (0, 1):
        ours = jax.grad(lambda *args: loss(matrix_product, *args), argument)(x, w)
        plain = jax.grad(lambda *args: loss(jnp.matmul, *args), argument)(x, w)
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(matrix_product(x, w), x @ w)


def test_networks_side_by_side_have_gradients_of_their_own():
    x = jnp.arange(6.0).reshape(3, 2)
    w = jnp.array([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[0.0] * 3] * 2])
    grads = jax.vmap(jax.grad(lambda w: (matrix_product(x, w) ** 2).sum() / 2))(w)
    np.testing.assert_allclose(grads[0], x.T @ (x @ w[0]), rtol=1e-6)
    np.testing.assert_array_equal(grads[1], 0.0)
