"""Multi-layer perceptrons."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import jax.numpy as jnp
import numpy as np

from rondel.nets.encode import encode, encoded_width
from rondel.nets.noisy import noise_of
from rondel.ops import random
from rondel.ops.products import matrix_product
from rondel.spaces import Space
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


def layers(key: Array, sizes: Sequence[int], last_scale: float) -> list[Tree]:
    """Parameters of the layers between `sizes`, the first entry being the input's."""
    gains = [2.0**0.5] * (len(sizes) - 2) + [last_scale]
    return orthogonal(key, list(pairwise(sizes)), gains)


def orthogonal(key: Array, shapes: Sequence[tuple[int, ...]], gains: Sequence[float]) -> list[Tree]:
    """Layers with weights of `shapes` [..., outputs], orthogonal but for their gains; no bias.

    All axes but the last are inputs: a kernel [rows, columns, inputs, outputs] begins as a matrix
    of rows * columns * inputs by outputs.
    """
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    # all numbers in one draw: each draw costs compilation time
    parts = jnp.split(random.normal(key, int(ends[-1])), [int(e) for e in ends[:-1]])
    return [
        {
            "w": gain * _orthogonal(part.reshape(-1, shape[-1])).reshape(shape),
            "b": jnp.zeros(shape[-1]),
        }
        for gain, part, shape in zip(gains, parts, shapes, strict=True)
    ]


def _orthogonal(normals: Array) -> Array:
    """A random matrix with orthogonal rows or columns, whichever are fewer, from normal numbers."""
    wide = normals.shape[0] < normals.shape[1]
    q, r = jnp.linalg.qr(normals.T if wide else normals)
    q = q * jnp.sign(jnp.diag(r))[None]  # else the decomposition's signs would show
    return q.T if wide else q


def forward(params: Tree, x: Array, activation: Activation) -> Array:
    """Through all layers, with an activation between them but not after the last."""
    for i, layer in enumerate(params):
        seen = activation(x) if i else x
        y = matrix_product(seen, layer["w"])
        x = y + jnp.broadcast_to(layer["b"], y.shape)
        noise = noise_of(layer, seen)
        x = x if noise is None else x + noise
    return x
