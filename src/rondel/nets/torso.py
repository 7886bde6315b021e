"""The part of a network that heads share: from observations to features.

It is chosen by name, or is a network of the user's own: any JAX library's pair of functions,
`init(key) -> params` and `apply(params, obs [b, ...]) -> [b, features]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from rondel.errors import RondelError, one_of
from rondel.nets import images
from rondel.nets.mlp import Activation, encode, encoded_width, forward, layers, parts
from rondel.spaces import Space, without_state, zeros
from rondel.types import Array, Network, Tree

KINDS = ("auto", "mlp", *images.TRUNKS)


def choose_torso(kind: str, space: Space) -> str:
    """What "auto" means for a space; any other name is itself.

    It is "mlp" where there is no image, else "nature" if all images are large enough for it, else
    "minatar" (and "mlp" for images that are too small even for that one).
    """
    if kind != "auto":
        return kind
    if all(len(leaf.shape) < 2 for leaf, _ in parts(space, space)):
        return "mlp"
    return images.fitting(space) or "mlp"


def make_torso(
    kind: str,
    space: Space,
    hidden: Sequence[int] = (64, 64),
    activation: Activation = jnp.tanh,
    own: Network | None = None,
) -> tuple[Network, int]:
    """A network from observations to features [..., width], and that width.

    `kind` is as in `choose_torso`, unless there is a network of the user's `own`. `hidden` and
    `activation` are those of "mlp"; the others are as published.
    """
    if own is not None:
        return own_torso(own, space)
    kind = choose_torso(kind, space)
    if kind == "mlp":
        return _mlp(space, hidden, activation)
    one_of(KINDS, network=kind)
    return images.network(space, images.TRUNKS[kind])


def _mlp(space: Space, hidden: Sequence[int], activation: Activation) -> tuple[Network, int]:
    sizes = (encoded_width(space), *hidden)

    def init(key: Array) -> Tree:
        return layers(key, sizes, 2.0**0.5) if hidden else []

    def apply(params: Tree, obs: Tree) -> Array:
        x = encode(space, obs)
        return activation(forward(params, x, activation)) if hidden else x

    return Network(init, apply), sizes[-1]


def own_torso(network: Network, space: Space) -> tuple[Network, int]:
    """The user's network for any number of leading axes, and its number of features."""
    space = without_state(space)
    rows = 3  # unlike most sizes, so that a network which forgets the batch is found out
    like = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, zeros(space, rows)))
    try:
        key = jax.random.key(0, impl="threefry2x32")
        params = jax.eval_shape(network.init, key)
        out = jax.eval_shape(network.apply, params, like)
    except Exception as error:
        raise RondelError(
            f"The network can't take observations {described(like)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    shape = getattr(out, "shape", None)
    if shape is None or len(shape) != 2 or shape[0] != rows:
        raise RondelError(
            f"The network must return features of shape ({rows}, n) for observations "
            f"{described(like)}, got {described(out)}. Rondel adds the last layers itself."
        )

    def apply(params: Tree, obs: Tree) -> Array:
        obs = without_state(obs)
        one, seen = (jax.tree.leaves(tree)[0] for tree in (zeros(space), obs))
        lead = seen.shape[: seen.ndim - one.ndim]
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[len(lead) :]), obs)
        features = network.apply(params, flat)
        return features.astype(jnp.float32).reshape(*lead, -1)

    return Network(network.init, apply), int(shape[1])


def described(tree: Any) -> str:
    """The types and shapes of arrays, in words."""
    if not jax.tree.leaves(tree):
        return repr(tree)
    return str(jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", tree))
