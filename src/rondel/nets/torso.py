"""The part of a network that heads share, chosen by name."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp

from rondel.errors import RondelError
from rondel.nets import images
from rondel.nets.encode import encode, encoded_width
from rondel.nets.mlp import Activation, forward, layers
from rondel.nets.own import own_torso
from rondel.spaces import Space
from rondel.types import Array, Network, Tree

KINDS = ("auto", "mlp", *images.TRUNKS)


def choose_trunk(kind: str, space: Space) -> str:
    """What "auto" means for a space; any other name is what it is.

    It is "mlp" where there is no image, else "nature" if all images are large enough for it, else
    "minatar" (and "mlp" for images that are too small even for that one).
    """
    return images.fitting(space) or "mlp" if kind == "auto" else kind


def make_torso(
    kind: str,
    space: Space,
    hidden: Sequence[int] = (64, 64),
    activation: Activation = jnp.tanh,
    own: Network | None = None,
) -> tuple[Network, int]:
    """A network from observations to features [..., width], and that width.

    `kind` is as in `choose`, unless there is a network of the user's `own`. `hidden` and
    `activation` are those of "mlp"; the others are as published.
    """
    if own is not None:
        return own_torso(own, space)
    kind = choose_trunk(kind, space)
    if kind == "mlp":
        return _mlp(space, hidden, activation)
    if kind not in KINDS:
        raise RondelError(f"network={kind!r} is not known: one of {', '.join(KINDS)} would be.")
    return images.network(space, images.TRUNKS[kind])


def _mlp(space: Space, hidden: Sequence[int], activation: Activation) -> tuple[Network, int]:
    sizes = (encoded_width(space), *hidden)

    def init(key: Array) -> Tree:
        return layers(key, sizes, 2.0**0.5) if hidden else []

    def apply(params: Tree, obs: Tree) -> Array:
        x = encode(space, obs)
        return activation(forward(params, x, activation)) if hidden else x

    return Network(init, apply), sizes[-1]


def chunk_of(kind: str, space: Space) -> int | None:
    """How many rows at a time its gradient is made quickest on CPUs; None: all at once."""
    kind = choose_trunk(kind, space)
    return images.TRUNKS[kind].chunk if kind in images.TRUNKS else None
