"""From an observation tree to one vector of floats, which every network of ours starts with."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from rondel.spaces import MASK, Box, Discrete, MultiDiscrete, Space
from rondel.types import Array, Tree


def width(space: Space) -> int:
    """How many numbers `encode` gives for one observation."""
    if isinstance(space, dict):
        return sum(width(part) for name, part in space.items() if name != MASK)
    if isinstance(space, tuple):
        return sum(width(part) for part in space)
    if isinstance(space, Discrete):
        return space.n
    if isinstance(space, MultiDiscrete):
        return sum(space.n)
    return int(np.prod(space.shape))


def encode(space: Space, obs: Tree) -> Array:
    """The observation as floats [..., width]: choices one-hot, bytes from 0 to 1."""
    if isinstance(space, dict):
        names = sorted(name for name in space if name != MASK)
        return jnp.concatenate([encode(space[name], obs[name]) for name in names], -1)
    if isinstance(space, tuple):
        return jnp.concatenate([encode(p, o) for p, o in zip(space, obs, strict=True)], -1)
    if isinstance(space, Discrete):
        return jax.nn.one_hot(obs, space.n)
    if isinstance(space, MultiDiscrete):
        parts = [jax.nn.one_hot(obs[..., i], n) for i, n in enumerate(space.n)]
        return jnp.concatenate(parts, -1)
    flat = obs.reshape(*obs.shape[: obs.ndim - len(space.shape)], -1).astype(jnp.float32)
    is_bytes = isinstance(space, Box) and space.dtype == "uint8"
    return flat / 255.0 if is_bytes else flat


def mask_of(obs: Tree) -> Array | None:
    """Which actions are allowed, where the observation says it."""
    return obs[MASK] if isinstance(obs, dict) and MASK in obs else None
