"""Values on a scale where great ones differ less: h(x) = sgn(x) (√(|x| + 1) - 1) + ε x.

Pohlen et al., Observe and Look Further: Achieving Consistent Performance on Atari, arXiv
1805.11593, proposition A.2.
"""

from __future__ import annotations

import jax.numpy as jnp

from rondel.types import Array

EPSILON = 1e-3  # what keeps the scale from getting flat far out


def rescale(x: Array, epsilon: float = EPSILON) -> Array:
    """h(x)."""
    return jnp.sign(x) * (jnp.sqrt(jnp.abs(x) + 1.0) - 1.0) + epsilon * x


def restore(y: Array, epsilon: float = EPSILON) -> Array:
    """The x with h(x) = y.

    That is sgn(y) (((√(1 + 4ε a) - 1) / 2ε)² - 1) with a = |y| + 1 + ε, written without the
    difference of two near numbers, which would leave few digits of float32.
    """
    a = jnp.abs(y) + 1.0 + epsilon
    root = 2.0 * a / (jnp.sqrt(1.0 + 4.0 * epsilon * a) + 1.0)
    return jnp.sign(y) * (root**2 - 1.0)
