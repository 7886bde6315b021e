"""A network in chunks: the same outputs and gradients as all rows at once."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rondel.ops import chunks
from rondel.ops.chunks import chunked_sum, in_chunks, mean_grad
from rondel.ops.statistics import masked_mean, standardise


def network(params, rows):
    return {"y": jnp.tanh(rows["x"] @ params["w"]), "n": rows["n"] * 2}


def loss(apply):
    """One that sees all rows at once: a masked mean, of outputs that were standardised."""

    def of(params, rows):
        y = apply(params, rows)["y"].sum(-1)
        valid = rows["n"] % 3 > 0
        return masked_mean(standardise(y, valid) ** 3 + y**2, valid)

    return of


@pytest.mark.parametrize("n", [1, 4, 5, 12, 13, 31])
def test_outputs_and_gradients_are_those_of_all_rows(n):
    rng = np.random.default_rng(n)
    params = {"w": rng.normal(size=(3, 2)).astype(np.float32)}
    rows = {"x": rng.normal(size=(n, 3)).astype(np.float32), "n": np.arange(n)}
    chunked = chunks.chunked(network, 4)
    out, expected = jax.jit(chunked)(params, rows), network(params, rows)
    np.testing.assert_allclose(out["y"], expected["y"], rtol=1e-6)
    assert out["n"].tolist() == expected["n"].tolist()
    grads = jax.jit(jax.grad(loss(chunked)))(params, rows)
    assert np.abs(grads["w"]).max() > 0 or n == 1
    np.testing.assert_allclose(
        grads["w"], jax.grad(loss(network))(params, rows)["w"], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("n", "seen"),
    [
        (4, 4),  # all at once
        (8, 4),  # 2 chunks
        (9, 3),  # 3 chunks hold them, so 3 rows in each
        (10, 4),  # 3 chunks of 4, two rows of them empty
    ],
)
def test_chunks_are_few_and_alike(n, seen):
    sizes = []

    def apply(params, rows):
        sizes.append(rows.shape[0])
        return rows

    out = chunks.chunked(apply, 4)((), jnp.arange(n))
    assert set(sizes) == {seen}
    assert out.tolist() == list(range(n))


def mean_loss(params, rows):
    """A masked mean over rows, and a metric that is another."""
    y = jnp.tanh(rows["x"] @ params["w"]).sum(-1) * rows["advantage"]
    return masked_mean(y, rows["valid"]), {"square": masked_mean(y**2, rows["valid"])}


@pytest.mark.parametrize("n", [3, 8, 13, 31])
def test_the_gradient_of_a_mean_in_chunks_is_that_of_all_rows(n):
    rng = np.random.default_rng(n)
    params = {"w": rng.normal(size=(3, 2)).astype(np.float32)}
    rows = {
        "x": rng.normal(size=(n, 3)).astype(np.float32),
        "advantage": rng.normal(size=n).astype(np.float32),
        "valid": np.arange(n) % 7 > 3,  # in some chunks all, in some none, in some a few
    }
    grads, metrics = jax.jit(mean_grad(mean_loss, 4))(params, rows, rows["valid"])
    expected, expected_metrics = jax.grad(mean_loss, has_aux=True)(params, rows)
    np.testing.assert_allclose(grads["w"], expected["w"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(metrics["square"], expected_metrics["square"], rtol=1e-5)


@pytest.mark.parametrize("n", [1, 4, 13])
def test_a_sum_in_chunks_is_that_of_all_rows(n):
    rows = {"x": np.arange(2.0 * n, dtype=np.float32).reshape(n, 2), "w": np.ones(n, np.float32)}
    total = jax.jit(chunked_sum(lambda rows: rows["w"] @ rows["x"], 4))(rows)
    np.testing.assert_allclose(total, rows["x"].sum(0))


def test_lanes_are_looked_at_together():
    seen = []

    def apply(params, rows):
        seen.append(rows.shape)
        return {"sum": rows @ params, "first": rows[:, 0]}

    params = np.array([[1.0], [10.0]], np.float32)
    rows = np.arange(12.0, dtype=np.float32).reshape(3, 2, 2)  # three lanes of two rows
    out = jax.vmap(partial(in_chunks(apply), params))(rows)
    assert seen[-1] == (6, 2)
    # rows are (0, 1), (2, 3), ...: 0 + 10, 2 + 30, ...
    np.testing.assert_array_equal(out["sum"][..., 0], [[10, 32], [54, 76], [98, 120]])
    np.testing.assert_array_equal(out["first"], [[0, 2], [4, 6], [8, 10]])
    # parameters that differ from lane to lane, as those of several seeds do
    many = np.stack([params, 2 * params, 0 * params])
    out = jax.vmap(in_chunks(apply))(many, rows)
    np.testing.assert_array_equal(out["sum"][..., 0], [[10, 32], [108, 152], [0, 0]])
    # and one row of all lanes for several parameters
    out = jax.vmap(in_chunks(apply), (0, None))(many, rows[0])
    np.testing.assert_array_equal(out["sum"][..., 0], [[10, 32], [20, 64], [0, 0]])
