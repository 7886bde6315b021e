"""Multi-layer perceptrons: observations as vectors of floats, and dense layers.

Shapes: `[...]` any leading axes; a layer is {"w": [inputs, outputs], "b": [outputs]}.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from rondel.nets.noisy import noise_of
from rondel.ops import random
from rondel.spaces import UNSEEN, Box, Discrete, Leaf, MultiDiscrete, Space
from rondel.types import Array, Network, Tree

Activation = Callable[[Array], Array]


def mlp(
    space: Space,
    hidden: Sequence[int],
    outputs: int,
    *,
    activation: Activation = jnp.tanh,
    last_scale: float = 1.0,
) -> Network:
    """A perceptron from observations of `space` to [..., outputs].

    Orthogonal initialisation, gain √2 in the hidden layers and `last_scale` in the last one.
    """
    sizes = (encoded_width(space), *hidden, outputs)

    def init(key: Array) -> Tree:
        return layers(key, sizes, last_scale)

    def apply(params: Tree, obs: Tree) -> Array:
        return forward(params, encode(space, obs), activation)

    return Network(init, apply)


def parts(space: Space, obs: Tree) -> list[tuple[Leaf, Any]]:
    """The leaves of a space that networks see, each with the part of `obs` in its place.

    In the order in which `encode` joins them; dicts by name.
    """
    if isinstance(space, dict):
        names = sorted(name for name in space if name not in UNSEEN)
        return [pair for name in names for pair in parts(space[name], obs[name])]
    if isinstance(space, tuple):
        return [pair for s, o in zip(space, obs, strict=True) for pair in parts(s, o)]
    return [(space, obs)]


def encoded_width(space: Space) -> int:
    """The number of floats that `encode` makes of one observation."""
    return sum(_width(leaf) for leaf, _ in parts(space, space))


def encode(space: Space, obs: Tree) -> Array:
    """The observation as floats [..., width]: choices one-hot, bytes from 0 to 1."""
    return jnp.concatenate([_encode(leaf, x) for leaf, x in parts(space, obs)], -1)


def _width(space: Leaf) -> int:
    if isinstance(space, Discrete):
        return space.n
    if isinstance(space, MultiDiscrete):
        return sum(space.n)
    return int(np.prod(space.shape))


def _encode(space: Leaf, obs: Array) -> Array:
    if isinstance(space, Discrete):
        return jax.nn.one_hot(obs, space.n)
    if isinstance(space, MultiDiscrete):
        choices = [jax.nn.one_hot(obs[..., i], n) for i, n in enumerate(space.n)]
        return jnp.concatenate(choices, -1)
    flat = obs.reshape(*obs.shape[: obs.ndim - len(space.shape)], -1).astype(jnp.float32)
    is_bytes = isinstance(space, Box) and space.dtype == "uint8"
    return flat / 255.0 if is_bytes else flat


def layers(key: Array, sizes: Sequence[int], last_scale: float) -> list[Tree]:
    """Parameters of the layers between `sizes`, the first entry being the input's."""
    gains = [2.0**0.5] * (len(sizes) - 2) + [last_scale]
    return orthogonal(key, list(pairwise(sizes)), gains)


def orthogonal(key: Array, shapes: Sequence[tuple[int, ...]], gains: Sequence[float]) -> list[Tree]:
    """Layers with weights of `shapes` [..., outputs], orthogonal times their gains; no bias.

    All axes but the last are inputs: a kernel [rows, columns, inputs, outputs] begins as a matrix
    of rows * columns * inputs by outputs.
    """
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    # all numbers in one draw: each draw costs compilation time
    drawn = jnp.split(random.normal(key, int(ends[-1])), [int(e) for e in ends[:-1]])
    return [
        {
            "w": gain * _orthogonal(part.reshape(-1, shape[-1])).reshape(shape),
            "b": jnp.zeros(shape[-1]),
        }
        for gain, part, shape in zip(gains, drawn, shapes, strict=True)
    ]


def _orthogonal(normals: Array) -> Array:
    """A random matrix with orthogonal rows or columns, whichever are fewer, from normal numbers."""
    wide = normals.shape[0] < normals.shape[1]
    q, r = jnp.linalg.qr(normals.T if wide else normals)
    q = q * jnp.sign(jnp.diag(r))[None]  # else the decomposition's signs would show
    return q.T if wide else q


def forward(params: Tree, x: Array, activation: Activation) -> Array:
    """Apply all layers, with an activation between them but not after the last."""
    for i, layer in enumerate(params):
        seen = activation(x) if i else x
        y = matrix_product(seen, layer["w"])
        x = y + jnp.broadcast_to(layer["b"], y.shape)
        if "noise_in" in layer:
            x = x + noise_of(layer, seen)
    return x


@jax.custom_vjp
def matrix_product(x: Array, w: Array) -> Array:
    """x [..., inputs] @ w [inputs, outputs], with a gradient as fast as the product itself.

    The gradient for w sums over rows, and XLA reads both of its factors across their rows. For a
    layer of two outputs that takes six times as long as the layer itself. Transposing the narrower
    factor first avoids it (python benchmarks/product.py).
    """
    return x @ w


def _product_forward(x: Array, w: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ w, (x, w)


def _product_backward(seen: tuple[Array, Array], grad: Array) -> tuple[Array, Array]:
    x, w = seen
    inputs, outputs = w.shape
    rows, grads = x.reshape(-1, inputs), grad.reshape(-1, outputs)
    if outputs == 1:  # a product with a vector, fast as it is
        return grad @ w.T, (grads.T @ rows).T
    if outputs < inputs:
        return grad @ w.T, _barrier(_barrier(grads.T) @ rows).T
    return grad @ w.T, _barrier(rows.T) @ grads


def _barrier(x: Array) -> Array:
    """Keep XLA from folding a transpose back into the product."""
    return lax.optimization_barrier(x)  # type: ignore[no-untyped-call]


matrix_product.defvjp(_product_forward, _product_backward)
