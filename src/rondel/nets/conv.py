"""Convolutions and pooling of images [channels, rows, columns, n].

XLA's convolutions are fast on accelerators and slow on CPUs, their gradients inside a loop even
slower. Matrix products are fast everywhere, so on CPUs a convolution is one. With the images of a
batch in the last axis its factors are copied in long runs, and no product, nor that of a gradient,
has to transpose a matrix. Measured in benchmarks/conv.md.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from rondel.types import Array


def conv(
    x: Array, w: Array, stride: int = 1, padding: str = "VALID", *, on: str | None = None
) -> Array:
    """Convolve images `x` [c, h, w, n] with kernels `w` [rows, columns, c, outputs].

    `padding` is "VALID" or "SAME", as in `lax.conv_general_dilated`. `on` is the kind of
    device ("cpu", "gpu", "tpu"); tests set it, the default is JAX's.
    """
    if (on or jax.default_backend()) != "cpu":
        x, axes = x.astype(w.dtype), ("CHWN", "HWIO", "CHWN")
        return lax.conv_general_dilated(x, w, (stride, stride), padding, dimension_numbers=axes)
    pads = lax.padtype_to_pads(x.shape[1:3], w.shape[:2], (stride, stride), padding)
    return _product(*_fold(x, w, stride, pads))


def max_pool(x: Array, size: int, stride: int, *, on: str | None = None) -> Array:
    """The largest number in each window of `size` x `size`, every `stride` pixels; "SAME" padding.

    Where several are the largest, the split of the gradient depends on the device.
    """
    window, strides = (1, size, size, 1), (1, stride, stride, 1)
    if (on or jax.default_backend()) != "cpu":
        return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, "SAME")
    for axis in (1, 2):
        ((low, high),) = lax.padtype_to_pads((x.shape[axis],), (size,), (stride,), "SAME")
        edges = [(low, high, 0) if a == axis else (0, 0, 0) for a in range(4)]
        x = lax.pad(x, jnp.array(-jnp.inf, x.dtype), edges)
        last = x.shape[axis] - size + 1
        take = partial(lax.slice_in_dim, x, stride=stride, axis=axis)
        largest = take(0, last)
        for i in range(1, size):
            largest = jnp.maximum(largest, take(i, last + i))
        x = largest
    return x


def _fold(x: Array, w: Array, stride: int, pads: list[tuple[int, int]]) -> tuple[Array, Array]:
    """Pad, then make each `stride` x `stride` square of pixels one pixel with more channels."""
    rows, columns, c, outputs = w.shape
    q_rows, q_columns = -(-rows // stride), -(-columns // stride)
    out = [
        (size + sum(pad) - k) // stride + 1
        for size, pad, k in zip(x.shape[1:3], pads, (rows, columns), strict=True)
    ]
    high, wide = out[0] - 1 + q_rows, out[1] - 1 + q_columns
    # a negative number cuts off pixels that no kernel reaches
    ends = [
        total * stride - size - low
        for total, size, (low, _) in zip((high, wide), x.shape[1:3], pads, strict=True)
    ]
    edges = [(0, 0, 0), (pads[0][0], ends[0], 0), (pads[1][0], ends[1], 0), (0, 0, 0)]
    x = lax.pad(x, jnp.zeros((), x.dtype), edges)
    if stride == 1:
        return x, w
    x = x.reshape(c, high, stride, wide, stride, -1).transpose(2, 4, 0, 1, 3, 5)
    x = x.reshape(stride * stride * c, high, wide, -1)
    w = jnp.pad(w, ((0, q_rows * stride - rows), (0, q_columns * stride - columns), (0, 0), (0, 0)))
    w = w.reshape(q_rows, stride, q_columns, stride, c, outputs).transpose(0, 2, 1, 3, 4, 5)
    return x, w.reshape(q_rows, q_columns, -1, outputs)


# The unfolded pixels are many times as large as the image: they are recomputed for the gradient.
@partial(jax.checkpoint, prevent_cse=False)
def _product(x: Array, w: Array) -> Array:
    """A convolution with stride 1 and no padding."""
    rows, columns, _, outputs = w.shape
    high, wide = x.shape[1] - rows + 1, x.shape[2] - columns + 1
    # first side by side, then below each other: two short chains of copies instead of a long one
    seen = jnp.concatenate([x[:, :, j : j + wide] for j in range(columns)]).astype(w.dtype)
    seen = jnp.concatenate([seen[:, i : i + high] for i in range(rows)])
    y = w.reshape(-1, outputs).T @ seen.reshape(seen.shape[0], -1)
    return y.reshape(outputs, high, wide, -1)
