"""From an observation tree to one vector of floats, which every network of ours starts with."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rondel.spaces import MASK, STATE, Box, Discrete, Leaf, MultiDiscrete, Space
from rondel.types import Array, Tree

_UNSEEN = (MASK, STATE)


def parts(space: Space, obs: Tree) -> list[tuple[Leaf, Any]]:
    """The leaves of a space with what `obs` has in their places; what is `unseen` is left out.

    In the order in which `encode` puts them; dicts are read by name.
    """
    if isinstance(space, dict):
        names = sorted(name for name in space if name not in _UNSEEN)
        return [pair for name in names for pair in parts(space[name], obs[name])]
    if isinstance(space, tuple):
        return [pair for s, o in zip(space, obs, strict=True) for pair in parts(s, o)]
    return [(space, obs)]


def encoded_width(space: Space) -> int:
    """How many numbers `encode` gives for one observation."""
    return sum(_width(leaf) for leaf, _ in parts(space, space))


def encode(space: Space, obs: Tree) -> Array:
    """The observation as floats [..., width]: choices one-hot, bytes from 0 to 1."""
    return jnp.concatenate([_encode(leaf, x) for leaf, x in parts(space, obs)], -1)


def mask_of(obs: Tree) -> Array | None:
    """Which actions are allowed, where the observation says it."""
    return obs[MASK] if isinstance(obs, dict) and MASK in obs else None


def unseen(obs: Tree) -> dict[str, Array]:
    """What it has besides that no network sees: a mask, a game's state."""
    return {name: obs[name] for name in _UNSEEN if isinstance(obs, dict) and name in obs}


def without_state(obs: Tree) -> Tree:
    """All of an observation, or of a space, but a game's state."""
    if not isinstance(obs, dict):
        return obs
    return {name: part for name, part in obs.items() if name != STATE}


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
