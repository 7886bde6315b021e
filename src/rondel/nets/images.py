"""Convolutional networks, from observations with images to features [..., width].

An image is a Box of three axes. Two neighbours of the same size are its rows and columns, and the
other axis its channels; else these are the smaller of the first and the last axis, the last if they
are equal: (4, 84, 84) has four channels, (10, 10, 4) too, and (8, 8, 119), a board of chess, 119.
Bytes of four axes are a stack of such images, whose channels follow one another; bytes of two axes
are an image of one channel, unless they are too few for `nature`. Bytes become numbers from 0 to 1.
Of an observation tree each image goes through convolutions of its own, and all else through
`encode`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rondel.errors import RondelError
from rondel.nets.conv import conv, max_pool
from rondel.nets.mlp import encode, encoded_width, orthogonal, parts
from rondel.ops.chunks import chunked
from rondel.spaces import Box, Leaf, Space
from rondel.types import Array, Network, Tree

_Shape = tuple[int, ...]
_relu = jax.nn.relu


class Trunk(NamedTuple):
    """The convolutions of a network, between an image and its one dense layer."""

    name: str
    features: int  # width of the dense layer
    smallest: int  # image that it can take, in each direction
    chunk: int  # images that a CPU takes at a time: as many as its caches hold
    kernels: Callable[[int], list[_Shape]]  # (channels) -> [rows, columns, inputs, outputs] each
    gains: Sequence[float]  # of each kernel
    see: Callable[[Tree, Array], Array]  # (layers, [c, h, w, n]) -> [c', h', w', n]


def is_image(space: Leaf) -> bool:
    if not isinstance(space, Box):
        return False
    if len(space.shape) == 2:  # those of a small table may be anything
        return space.dtype == "uint8" and min(space.shape) >= _NATURE.smallest
    return len(space.shape) == 3 or (len(space.shape) == 4 and space.dtype == "uint8")


def fitting(space: Space) -> str | None:
    """The first of nature and minatar that suits the sizes of all images; None if neither does."""
    images = _images(space)
    for name in ("nature", "minatar"):
        if images and not _too_small(images, TRUNKS[name]):
            return name
    return None


def channels_first(shape: _Shape) -> bool:
    first, middle, last = shape
    if (first == middle) != (middle == last):
        return middle == last
    return first < last


def network(space: Space, trunk: Trunk) -> tuple[Network, int]:
    """A network for observations of `space`, and its number of features."""
    images = _images(space)
    _check(space, images, trunk)
    shapes = [_shapes(trunk, shape) for shape in images]

    def init(key: Array) -> Tree:
        gains = [*trunk.gains, 2.0**0.5] * len(images)
        drawn = iter(orthogonal(key, [s for each in shapes for s in each], gains))
        return [[next(drawn) for _ in each] for each in shapes]

    def apply(params: Tree, obs: Tree) -> Array:
        layers = iter(params)
        features = [
            _see(trunk, next(layers), x, leaf.shape) if is_image(leaf) else encode(leaf, x)
            for leaf, x in parts(space, obs)
        ]
        return jnp.concatenate(features, -1)

    sizes = (
        trunk.features if is_image(leaf) else encoded_width(leaf) for leaf, _ in parts(space, space)
    )
    return Network(init, apply), sum(sizes)


def _see(trunk: Trunk, layers: Tree, image: Array, shape: _Shape) -> Array:
    """Features [..., width] of an image [..., *shape]."""
    *kernels, dense = layers
    batch = image.shape[: image.ndim - len(shape)]
    if image.dtype == jnp.uint8:  # a kernel is smaller than a batch of images
        kernels[0] = kernels[0] | {"w": kernels[0]["w"] / 255.0}
    one = _stack(shape)[1:]

    def flat(kernels: Tree, rows: Array) -> Array:
        x = rows.transpose((1, 2, 3, 4, 0) if channels_first(one) else (1, 4, 2, 3, 0))
        seen = trunk.see(kernels, x.reshape(-1, *x.shape[2:]))
        return seen.reshape(-1, rows.shape[0]).T

    rows = image.reshape(-1, *_stack(shape))
    on_cpu = jax.default_backend() == "cpu"
    seen = (chunked(flat, trunk.chunk) if on_cpu else flat)(kernels, rows)
    out = seen @ dense["w"]
    return _relu(out + jnp.broadcast_to(dense["b"], out.shape)).reshape(*batch, -1)


def _shapes(trunk: Trunk, image: _Shape) -> list[_Shape]:
    """The weights of all layers, for an image of this shape."""
    channels, rows, columns = _sizes(image)
    kernels = trunk.kernels(channels)

    def flat() -> Array:
        like = [{"w": jnp.zeros(k), "b": jnp.zeros(k[-1])} for k in kernels]
        return trunk.see(like, jnp.zeros((channels, rows, columns, 1))).ravel()

    return [*kernels, (jax.eval_shape(flat).size, trunk.features)]


def _images(space: Space) -> list[_Shape]:
    return [leaf.shape for leaf, _ in parts(space, space) if is_image(leaf)]


def _too_small(images: list[_Shape], trunk: Trunk) -> list[_Shape]:
    return [shape for shape in images if min(_sizes(shape)[1:]) < trunk.smallest]


def _stack(shape: _Shape) -> _Shape:
    """The shape of an image as that of a stack of images with three axes each."""
    return (1, *shape, 1) if len(shape) == 2 else (1, *shape)[-4:]


def _sizes(image: _Shape) -> _Shape:
    """Channels, height and width."""
    stacked, *one = _stack(image)
    channels, rows, columns = one if channels_first(tuple(one)) else (one[2], *one[:2])
    return stacked * channels, rows, columns


def _check(space: Space, images: list[_Shape], trunk: Trunk) -> None:
    if not images:
        shapes = ", ".join(str(leaf.shape) for leaf, _ in parts(space, space))
        raise RondelError(
            f"{trunk.name} needs an image: a Box of three axes such as (84, 84, 3), or bytes of "
            f"two or four axes. The observations have the shapes {shapes}. Use mlp."
        )
    small = _too_small(images, trunk)
    if small:
        _, rows, columns = _sizes(small[0])
        others = [name for name, t in TRUNKS.items() if min(rows, columns) >= t.smallest]
        raise RondelError(
            f"{trunk.name} needs images of {trunk.smallest}x{trunk.smallest} or more; one of shape "
            f"{small[0]} is {rows}x{columns}. Use {' or '.join([*others, 'mlp'])}."
        )


def _layer(layer: Tree, x: Array, stride: int = 1, padding: str = "SAME") -> Array:
    y = conv(x, layer["w"], stride, padding)
    return y + jnp.broadcast_to(layer["b"][:, None, None, None], y.shape)


def _rectified(strides: Sequence[int], layers: Tree, x: Array) -> Array:
    for layer, stride in zip(layers, strides, strict=True):
        x = _relu(_layer(layer, x, stride, "VALID"))
    return x


def _see_impala(layers: Tree, x: Array) -> Array:
    for i in range(0, len(layers), 5):
        x = max_pool(_layer(layers[i], x), 3, 2)
        for one, two in (layers[i + 1 : i + 3], layers[i + 3 : i + 5]):
            x = x + _layer(two, _relu(_layer(one, _relu(x))))
    return _relu(x)


def _impala_kernels(inputs: int) -> list[_Shape]:
    shapes: list[_Shape] = []
    for outputs in (16, 32, 32):
        shapes += [(3, 3, inputs, outputs), *[(3, 3, outputs, outputs)] * 4]
        inputs = outputs
    return shapes


# Mnih et al., Human-level control through deep reinforcement learning, Nature 518 (2015)
_NATURE = Trunk(
    name="nature",
    features=512,
    smallest=36,
    chunk=32,
    kernels=lambda inputs: [(8, 8, inputs, 32), (4, 4, 32, 64), (3, 3, 64, 64)],
    gains=[2.0**0.5] * 3,
    see=partial(_rectified, (4, 2, 1)),
)
# a residual network whose three stages halve the image each: Espeholt et al., IMPALA: Scalable
# Distributed Deep-RL with Importance Weighted Actor-Learner Architectures, arXiv 1802.01561, fig. 3
_IMPALA = Trunk(
    name="impala",
    features=256,
    smallest=1,
    chunk=8,
    kernels=_impala_kernels,
    # the sum of a stage's blocks must not grow with the number of stages
    gains=[2.0**0.5, *[2.0**0.5, (1.0 / 3) ** 0.5] * 2] * 3,
    see=_see_impala,
)
# Young and Tian, MinAtar: An Atari-Inspired Testbed for Thorough and Reproducible Reinforcement
# Learning Experiments, arXiv 1903.03176
_MINATAR = Trunk(
    name="minatar",
    features=128,
    smallest=3,
    chunk=256,
    kernels=lambda inputs: [(3, 3, inputs, 16)],
    gains=[2.0**0.5],
    see=partial(_rectified, (1,)),
)
# a line of four lies within one window of 4 x 4 cells, whatever its direction; 6 x 7 cells have 12
_BOARD = Trunk(
    name="board",
    features=256,
    smallest=4,
    chunk=256,
    kernels=lambda inputs: [(4, 4, inputs, 128), (1, 1, 128, 64)],
    gains=[2.0**0.5] * 2,
    see=partial(_rectified, (1, 1)),
)
TRUNKS = {trunk.name: trunk for trunk in (_NATURE, _IMPALA, _MINATAR, _BOARD)}
