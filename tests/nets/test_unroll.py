"""A recurrent step over time."""

import jax.numpy as jnp
import numpy as np

from rondel.nets.recurrent import unroll_cell


def test_episodes_begin_with_the_start():
    """carry' = carry + x, y = 10 carry'. Lane 0 begins at row 2, lane 1 at row 0; the start is 100.

    Lane 0: carries 1, 1+1=2, then 100; after: 2, 4 (2+2), 103. Lane 1: 100, 101, 103.
    """
    x = jnp.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    first = jnp.array([[False, True], [False, False], [True, False]])
    ys, carries = unroll_cell(
        lambda c, x: (c + x, 10.0 * (c + x)),
        jnp.array([100.0, 100.0]),
        jnp.array([1.0, 7.0]),
        x,
        first,
    )
    np.testing.assert_array_equal(carries, [[1.0, 100.0], [2.0, 101.0], [100.0, 103.0]])
    np.testing.assert_array_equal(ys, [[20.0, 1010.0], [40.0, 1030.0], [1030.0, 1060.0]])


def test_carries_are_trees():
    ys, carries = unroll_cell(
        lambda c, x: ({"a": c["a"] + x, "b": c["b"]}, c["a"]),
        {"a": jnp.zeros(1), "b": jnp.zeros((1, 2, 3))},
        {"a": jnp.ones(1), "b": jnp.ones((1, 2, 3))},
        jnp.ones((2, 1)),
        jnp.array([[False], [True]]),
    )
    np.testing.assert_array_equal(ys, [[1.0], [0.0]])
    assert carries["b"].shape == (2, 1, 2, 3)
    np.testing.assert_array_equal(carries["b"][:, 0, 0, 0], [1.0, 0.0])
