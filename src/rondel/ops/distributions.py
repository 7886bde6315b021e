"""Action distributions as records of functions, one for each kind of action space.

`params` are a network's outputs: `[..., size]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rondel.errors import RondelError
from rondel.ops import random
from rondel.spaces import Box, Discrete, MultiDiscrete, Space
from rondel.types import Array

_FORBIDDEN = -1e9  # finite, so that an entropy is not 0 · -inf


class Distribution(NamedTuple):
    """A distribution of actions with a vector of parameters."""

    size: int  # number of parameters
    sample: Callable[[Array, Array], Array]  # (params [b, size], keys [b]) -> action [b, ...]
    mode: Callable[[Array], Array]  # (params [..., size]) -> action [..., ...]
    log_prob: Callable[[Array, Array], Array]  # (params [..., size], action) -> [...]
    entropy: Callable[[Array], Array]  # (params [..., size]) -> [...]


def categorical(n: int) -> Distribution:
    """One of n choices; the parameters are logits."""

    def sample(params: Array, keys: Array) -> Array:
        share = jax.nn.softmax(params)
        # so that rounding never selects a choice of probability 0
        upto = jnp.where(share > 0.0, jnp.cumsum(share, -1), -1.0)
        point = random.uniform(keys, 1) * upto.max(-1, keepdims=True)
        return (upto > point).argmax(-1).astype(jnp.int32)

    def log_prob(params: Array, action: Array) -> Array:
        logs = jax.nn.log_softmax(params)
        # a sum over a one-hot is cheaper on CPU than a gather, and its gradient than a scatter
        return jnp.sum(logs * jax.nn.one_hot(action, n), -1)

    def entropy(params: Array) -> Array:
        logs = jax.nn.log_softmax(params)
        return -jnp.sum(jnp.exp(logs) * logs, -1)

    return Distribution(n, sample, lambda p: p.argmax(-1).astype(jnp.int32), log_prob, entropy)


def multi_categorical(n: tuple[int, ...]) -> Distribution:
    """Several independent choices; the parameters are their logits one after the other."""
    parts = [categorical(k) for k in n]
    cuts = [int(c) for c in np.cumsum(n)[:-1]]

    def split(params: Array) -> list[Array]:
        return jnp.split(params, cuts, -1)

    def sample(params: Array, keys: Array) -> Array:
        pairs = zip(parts, split(params), strict=True)
        each = [part.sample(p, random.fold(keys, i)) for i, (part, p) in enumerate(pairs)]
        return jnp.stack(each, -1)

    def mode(params: Array) -> Array:
        return jnp.stack([p.argmax(-1).astype(jnp.int32) for p in split(params)], -1)

    def log_prob(params: Array, action: Array) -> Array:
        pairs = zip(parts, split(params), strict=True)
        return sum(
            (part.log_prob(p, action[..., i]) for i, (part, p) in enumerate(pairs)), jnp.zeros(())
        )

    def entropy(params: Array) -> Array:
        pairs = zip(parts, split(params), strict=True)
        return sum((part.entropy(p) for part, p in pairs), jnp.zeros(()))

    return Distribution(sum(n), sample, mode, log_prob, entropy)


def gaussian(dimensions: int) -> Distribution:
    """Independent normals; the parameters are the means, then the logs of the deviations."""

    def split(params: Array) -> tuple[Array, Array]:
        return params[..., :dimensions], params[..., dimensions:]

    def sample(params: Array, keys: Array) -> Array:
        mean, log_std = split(params)
        return mean + jnp.exp(log_std) * random.normal(keys, dimensions)

    def log_prob(params: Array, action: Array) -> Array:
        mean, log_std = split(params)
        z = (action - mean) * jnp.exp(-log_std)
        return jnp.sum(-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi), -1)

    def entropy(params: Array) -> Array:
        return jnp.sum(split(params)[1] + 0.5 * np.log(2 * np.pi * np.e), -1)

    return Distribution(2 * dimensions, sample, lambda p: split(p)[0], log_prob, entropy)


def squashed(mean: Array, log_std: Array, normal: Array) -> tuple[Array, Array]:
    """Actions tanh(u), u = mean + deviation · normal, and their log densities.

    log π = Σ log N(u) - log(1 - tanh(u)²). The second term is 2 (log 2 - u - softplus(-2u)), exact
    even where tanh rounds to 1. All are [..., dimensions], densities [...].

    Haarnoja et al., Soft Actor-Critic, arXiv 1801.01290, appendix C.
    """
    u = mean + jnp.exp(log_std) * normal
    log_normal = -0.5 * normal**2 - log_std - 0.5 * np.log(2 * np.pi)
    log_slope = 2.0 * (np.log(2.0) - u - jax.nn.softplus(-2.0 * u))
    return jnp.tanh(u), jnp.sum(log_normal - log_slope, -1)


def for_space(space: Space) -> Distribution:
    """The distribution for an action space."""
    if isinstance(space, Discrete):
        return categorical(space.n)
    if isinstance(space, MultiDiscrete):
        return multi_categorical(space.n)
    if isinstance(space, Box) and len(space.shape) == 1:
        return gaussian(space.shape[0])
    raise RondelError(
        f"The action space must be Discrete, MultiDiscrete or a Box of one axis, got {space}."
    )


def masked(logits: Array, mask: Array | None) -> Array:
    """Logits without forbidden choices; `mask` is nonzero where a choice is allowed."""
    return logits if mask is None else jnp.where(mask != 0, logits, _FORBIDDEN)
