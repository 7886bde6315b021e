"""A network of the user's own: any JAX library's pair of functions, from observations to features.

`init(key) -> params` and `apply(params, obs [b, ...]) -> [b, features]`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from rondel.errors import RondelError
from rondel.nets.encode import without_state
from rondel.spaces import Space, zeros
from rondel.types import Array, Network, Tree


def own_torso(network: Network, space: Space) -> tuple[Network, int]:
    """The network for any number of leading axes, and how many features it gives."""
    space = without_state(space)
    rows = 3  # unlike most sizes, so that a network which forgets the batch is found out
    try:
        key = jax.random.key(0, impl="threefry2x32")
        params = jax.eval_shape(network.init, key)
        out = jax.eval_shape(network.apply, params, _like(space, rows))
    except Exception as error:
        raise RondelError(
            f"The network can't take observations {_shapes(space, rows)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    shape = getattr(out, "shape", None)
    if shape is None or len(shape) != 2 or shape[0] != rows:
        raise RondelError(
            f"For observations {_shapes(space, rows)} the network gave {described(out)}; it must "
            f"give features of shape ({rows}, n). Rondel adds the last layers itself."
        )

    def apply(params: Tree, obs: Tree) -> Array:
        obs = without_state(obs)
        one, seen = (jax.tree.leaves(tree)[0] for tree in (zeros(space), obs))
        lead = seen.shape[: seen.ndim - one.ndim]
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[len(lead) :]), obs)
        features = network.apply(params, flat)
        return features.astype(jnp.float32).reshape(*lead, -1)

    return Network(network.init, apply), int(shape[1])


def _like(space: Space, rows: int) -> Tree:
    return jax.eval_shape(lambda: jax.tree.map(jnp.asarray, zeros(space, rows)))


def _shapes(space: Space, rows: int) -> str:
    return described(_like(space, rows))


def described(tree: Any) -> str:
    """The types and shapes of arrays, in words."""
    if not jax.tree.leaves(tree):
        return repr(tree)
    words = jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", tree)
    return words if isinstance(words, str) else str(words)
