"""Blocks of lanes, and the one way by which host memory enters JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from rondel.execution.task import blocked, to_device


def test_blocks_cover_all_lanes_in_order() -> None:
    seen = []

    def f(shared: int, x: jax.Array) -> jax.Array:
        seen.append(x.shape)
        return x * shared

    x = np.arange(24.0, dtype=np.float32).reshape(12, 2)
    np.testing.assert_array_equal(blocked(f, 4)(3, x), 3 * x)
    assert set(seen) == {(4, 2)}
    np.testing.assert_array_equal(blocked(f, 12)(3, x), 3 * x)


def test_what_was_handed_over_no_longer_depends_on_its_source() -> None:
    """An environment may reuse its buffers as soon as it is asked for the next step."""
    slow = jax.jit(lambda x: jnp.linalg.matrix_power(x, 5).sum() * 0 + x[0, 0])
    wrong = 0
    for i in range(30):
        buffer = np.full((300, 300), float(i), np.float32)
        out = slow(to_device({"obs": buffer})["obs"])
        buffer[:] = -1.0
        wrong += float(out) != i
    assert wrong == 0
