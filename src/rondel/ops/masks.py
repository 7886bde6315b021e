"""Means over the rows that count. `valid` is a mask of the same shape as `x`."""

from __future__ import annotations

import jax.numpy as jnp

from rondel.types import Array


def masked_mean(x: Array, valid: Array) -> Array:
    """Mean of `x` where `valid`; 0 where nothing is."""
    return jnp.sum(jnp.where(valid, x, 0.0)) / jnp.maximum(jnp.sum(valid), 1)


def standardise(x: Array, valid: Array, epsilon: float = 1e-8) -> Array:
    """`x` with zero mean and unit deviation over the rows that are valid."""
    centred = x - masked_mean(x, valid)
    return centred / (jnp.sqrt(masked_mean(centred**2, valid)) + epsilon)
