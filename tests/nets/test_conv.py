"""Convolutions as matrix products are the convolutions of `lax`, and so are their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rondel.nets.conv import conv, max_pool


def normals(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def assert_same(x, w, stride, padding):
    def both(on):
        def apply(x, w):
            y = conv(x, w, stride, padding, on=on)
            return jnp.sum(y * jnp.asarray(normals(2, *y.shape))), y

        return jax.jit(jax.value_and_grad(apply, (0, 1), has_aux=True))(x, w)

    (_, y), grads = both("cpu")
    (_, y_lax), grads_lax = both("gpu")
    for ours, theirs in zip((y, *grads), (y_lax, *grads_lax), strict=True):
        assert ours.shape == theirs.shape
        scale = float(jnp.abs(theirs).max())
        np.testing.assert_allclose(ours, theirs, atol=1e-5 * max(scale, 1.0))


# channels, height, width, images, kernel's rows and columns, outputs, stride
CASES = {
    "nature, first": (4, 84, 84, 2, 8, 8, 32, 4),
    "nature, second": (32, 20, 20, 2, 4, 4, 64, 2),
    "nature, third": (64, 9, 9, 2, 3, 3, 64, 1),
    "impala": (4, 21, 21, 2, 3, 3, 16, 1),
    "minatar": (6, 10, 10, 2, 3, 3, 16, 1),
    "stride that divides nothing": (2, 11, 13, 2, 5, 4, 3, 3),
    "stride larger than the kernel": (2, 9, 11, 2, 2, 1, 3, 4),
    "kernel as large as the image": (3, 5, 4, 2, 5, 4, 2, 2),
    "one pixel": (3, 1, 1, 2, 1, 1, 2, 1),
    "pixels that no kernel comes to": (1, 12, 10, 1, 3, 3, 1, 5),
}


@pytest.mark.parametrize("padding", ["VALID", "SAME"])
@pytest.mark.parametrize("case", CASES)
def test_a_convolution_is_that_of_lax(case, padding):
    c, high, wide, n, rows, columns, outputs, stride = CASES[case]
    assert_same(
        normals(0, c, high, wide, n), normals(1, rows, columns, c, outputs), stride, padding
    )


@settings(max_examples=15, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 9)] * 2),
    kernel=st.tuples(*[st.integers(1, 5)] * 2),
    channels=st.integers(1, 3),
    outputs=st.integers(1, 3),
    stride=st.integers(1, 5),
    padding=st.sampled_from(["VALID", "SAME"]),
)
def test_a_convolution_of_any_shape(sizes, kernel, channels, outputs, stride, padding):
    if padding == "VALID":
        kernel = tuple(min(k, size) for k, size in zip(kernel, sizes, strict=True))
    assert_same(
        normals(0, channels, *sizes, 2), normals(1, *kernel, channels, outputs), stride, padding
    )


def test_a_convolution_by_hand():
    # 1 2 3
    # 4 5 6   seen through  1 0   gives 1 + 10 = 11, 2 + 12 = 14, 4 + 16 = 20, 5 + 18 = 23
    # 7 8 9                 0 2
    x = jnp.arange(1.0, 10.0).reshape(1, 3, 3, 1)
    w = jnp.array([[1.0, 0.0], [0.0, 2.0]]).reshape(2, 2, 1, 1)
    assert conv(x, w, on="cpu").ravel().tolist() == [11.0, 14.0, 20.0, 23.0]
    # every second pixel, with zeros at the end: 11, 3 + 0, 7 + 0, 9 + 0
    assert conv(x, w, 2, "SAME", on="cpu").ravel().tolist() == [11.0, 3.0, 7.0, 9.0]


@pytest.mark.parametrize("on", ["cpu", "gpu"])
def test_bytes_become_numbers_of_the_kernels_type(on):
    x = np.full((1, 2, 2, 1), 200, np.uint8)
    y = conv(jnp.asarray(x), jnp.ones((2, 2, 1, 1)), on=on)
    assert y.dtype == jnp.float32
    assert y.ravel().tolist() == [800.0]


def test_forward_derivatives_exist():
    x, w = normals(0, 2, 6, 6, 2), normals(1, 3, 3, 2, 2)
    _, along = jax.jvp(lambda w: conv(x, w, 2, on="cpu"), (w,), (w,))
    np.testing.assert_allclose(along, conv(x, w, 2, on="gpu"), atol=1e-5)  # linear in w


@pytest.mark.parametrize("shape", [(2, 84, 84, 1), (3, 5, 8, 2), (1, 1, 2, 1), (1, 2, 3, 1)])
@pytest.mark.parametrize(("size", "stride"), [(3, 2), (2, 2), (3, 1)])
def test_pooling_is_that_of_lax(shape, size, stride):
    # no two numbers alike: the gradient goes to one pixel only
    order = np.random.default_rng(0).permutation(int(np.prod(shape)))
    x = order.reshape(shape).astype(np.float32) - order.size / 2

    def both(on):
        def apply(x):
            y = max_pool(x, size, stride, on=on)
            return jnp.sum(y * jnp.asarray(normals(1, *y.shape))), y

        return jax.jit(jax.grad(apply, has_aux=True))(x)

    for ours, theirs in zip(both("cpu"), both("gpu"), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
