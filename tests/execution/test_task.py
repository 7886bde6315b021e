"""Blocks of lanes, programs of what is new alone, and how host memory enters JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rondel.execution.stages.task import jit_computed_leaves, map_blocks, to_device


def test_blocks_cover_all_lanes_in_order() -> None:
    seen = []

    def f(shared: int, x: jax.Array) -> jax.Array:
        seen.append(x.shape)
        return x * shared

    x = np.arange(24.0, dtype=np.float32).reshape(12, 2)
    np.testing.assert_array_equal(map_blocks(f, 4)(3, x), 3 * x)
    assert set(seen) == {(4, 2)}
    np.testing.assert_array_equal(map_blocks(f, 12)(3, x), 3 * x)


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


def test_a_lean_program_computes_what_is_new_and_hands_the_rest_through() -> None:
    state = {"params": jnp.arange(3.0), "count": jnp.int32(4)}

    def counted(state: dict[str, jax.Array], by: jax.Array) -> dict[str, jax.Array]:
        return {"params": state["params"], "count": state["count"] + by, "by": by}

    after = jit_computed_leaves(counted)(state, jnp.int32(2))
    assert after["params"] is state["params"]  # not even copied
    assert (int(after["count"]), int(after["by"])) == (6, 2)


def test_a_lean_program_that_only_looks_things_up_is_called_once() -> None:
    state = {"params": {"w": jnp.ones(2)}, "count": jnp.int32(0)}
    calls = []

    def params(state: dict[str, Any]) -> Any:
        calls.append(state)
        return state["params"]

    look = jit_computed_leaves(params)
    assert all(look(state)["w"] is state["params"]["w"] for _ in range(3))
    assert len(calls) == 1


def test_a_lean_program_learns_the_shape_of_trees_anew() -> None:
    swapped = jit_computed_leaves(lambda a, b: (b, a))
    one, two, three = map(jnp.int32, (1, 2, 3))
    assert swapped(one, two) == (two, one)
    assert swapped((one, two), three) == (three, (one, two))


def test_a_lean_program_gives_arrays_of_jax_whatever_it_is_given() -> None:
    [given] = jit_computed_leaves(lambda x: [x])(np.arange(3.0))
    assert isinstance(given, jax.Array)
    assert given.dtype == jnp.float32
