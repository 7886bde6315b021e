"""The part of a network that heads share, chosen by name."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from rondel.errors import RondelError
from rondel.nets import images
from rondel.nets.encode import encode, width
from rondel.nets.mlp import Activation, forward, layers
from rondel.spaces import Space
from rondel.types import Array, Network, Tree

KINDS = ("auto", "mlp", *images.TRUNKS)


def torso(
    kind: str,
    space: Space,
    hidden: Sequence[int] = (64, 64),
    activation: Activation = jnp.tanh,
) -> tuple[Network, int]:
    """A network from observations to features [..., width], and that width.

    "auto" is "mlp" where there is no image, else "nature" if all images are large enough for it,
    else "minatar" (and "mlp" for images that are too small even for that one). `hidden` and
    `activation` are those of "mlp"; the others are as published.
    """
    if kind == "auto":
        kind = images.fitting(space) or "mlp"
    if kind == "mlp":
        return _mlp(space, hidden, activation)
    if kind not in KINDS:
        raise RondelError(f"network={kind!r} is not known: one of {', '.join(KINDS)} would be.")
    return images.network(space, images.TRUNKS[kind])


def _mlp(space: Space, hidden: Sequence[int], activation: Activation) -> tuple[Network, int]:
    sizes = (width(space), *hidden)

    def init(key: Array) -> Tree:
        return layers(key, sizes, 2.0**0.5) if hidden else []

    def apply(params: Tree, obs: Tree) -> Array:
        x = encode(space, obs)
        return activation(forward(params, x, activation)) if hidden else x

    return Network(init, apply), sizes[-1]


def sees_images(space: Space) -> bool:
    """Would "auto" take convolutions?"""
    return images.fitting(space) is not None


def chunk_of(kind: str, space: Space) -> int | None:
    """How many rows at a time the gradient of such a torso is made quickest; None: all at once."""
    if kind == "auto":
        kind = images.fitting(space) or "mlp"
    on_cpu = jax.default_backend() == "cpu"
    return images.TRUNKS[kind].chunk if on_cpu and kind in images.TRUNKS else None
