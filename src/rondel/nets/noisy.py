"""Layers with noise in their weights, for exploration that is learned.

y = (w + w' ε) x + b + b' ε with ε_ij = f(ε_i) f(ε_j) for weights and f(ε_j) for biases, where
f(x) = sgn(x) √|x|: factorised Gaussian noise, which costs one number per input and output. It is
never multiplied out, so each row may have noise of its own.

Fortunato et al., Noisy Networks for Exploration, arXiv 1706.10295.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from rondel.ops import random
from rondel.types import Array, Tree


def with_spread(layers: Sequence[Tree], scale: float) -> list[Tree]:
    """Layers with parameters for noise: w' and b' begin at scale / √inputs."""

    def one(layer: Tree) -> Tree:
        size = scale / layer["w"].shape[0] ** 0.5
        spread = {f"{name}_spread": jnp.full_like(layer[name], size) for name in ("w", "b")}
        return layer | spread

    return [one(layer) for layer in layers]


def with_noise(params: Tree, keys: Array, nth: int = 0) -> Tree:
    """Draw noise for all noisy layers; without it they compute their means.

    `keys` are [b], one for each row that the network is applied to, or [], one for all rows. The
    same keys give other noise for each `nth`.
    """
    layers, tree = jax.tree.flatten(params, is_leaf=_is_noisy)
    drawn = [
        _drawn(layer, random.fold(keys.reshape(-1), i, 1 + nth)) if _is_noisy(layer) else layer
        for i, layer in enumerate(layers)
    ]
    return jax.tree.unflatten(tree, drawn)


def noise_of(layer: Tree, x: Array) -> Array:
    """What the noise of a layer adds to its outputs, for inputs x [b, inputs]."""
    spread = (x * layer["noise_in"]) @ layer["w_spread"]
    spread = spread + jnp.broadcast_to(layer["b_spread"], spread.shape)
    return spread * layer["noise_out"]


def _is_noisy(layer: Tree) -> bool:
    return isinstance(layer, dict) and "w_spread" in layer


def _drawn(layer: Tree, keys: Array) -> Tree:
    inputs, outputs = layer["w"].shape
    noise = random.normal(keys, inputs + outputs)
    noise = jnp.sign(noise) * jnp.sqrt(jnp.abs(noise))
    return layer | {"noise_in": noise[..., :inputs], "noise_out": noise[..., inputs:]}
