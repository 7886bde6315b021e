"""The sum tree, against NumPy sums and flashbax's tree."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rondel.memory import priorities

with warnings.catch_warnings():  # what flashbax imports is older than jax
    warnings.simplefilter("ignore")
    from flashbax.buffers import sum_tree

LEAVES = 700  # three levels, none of them full
find, assign = jax.jit(priorities.find), jax.jit(priorities.assign)
refresh = jax.jit(priorities.refresh, static_argnums=2)


def tree_of(weight):
    levels = priorities.empty(len(weight))
    leaves = levels[0].at[: len(weight)].set(jnp.float32(weight))
    return refresh((leaves, *levels[1:]), 0, len(weight))


def random_weights(seed, share_of_zeros=0.5):
    rng = np.random.default_rng(seed)
    weight = rng.exponential(size=LEAVES) * (rng.random(LEAVES) > share_of_zeros)
    return weight.astype(np.float32)


def check_sums(levels):
    for below, above in itertools.pairwise(levels):
        sums = np.asarray(below, np.float64).reshape(-1, priorities.WIDTH).sum(1)
        np.testing.assert_allclose(above[: len(sums)], sums, rtol=1e-6)
        assert not np.asarray(above[len(sums) :]).any()


def test_a_point_finds_the_leaf_that_covers_it():
    # leaves 0, 2, 0, 3, 1 cover 0..2, 2..5, 5..6
    levels = tree_of(np.float32([0, 2, 0, 3, 1]))
    leaf, weight = find(levels, jnp.float32([0.0, 1.9, 2.0, 4.9, 5.0, 6.0, 7.0]))
    np.testing.assert_array_equal(leaf, [1, 1, 3, 3, 4, 4, 4])  # also at the end and beyond
    np.testing.assert_array_equal(weight, [2, 2, 3, 3, 1, 1, 1])
    assert float(priorities.total(levels)) == 6.0


def test_an_empty_tree_finds_something_in_bounds():
    leaf, weight = find(priorities.empty(LEAVES), jnp.zeros(3))
    assert ((leaf >= 0) & (leaf < LEAVES)).all()
    np.testing.assert_array_equal(weight, 0.0)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.5, 0.99]))
def test_what_is_found_is_what_numpy_finds(seed, share_of_zeros):
    weight = random_weights(seed, share_of_zeros)
    weight[0] = 1.0  # not all 0
    levels = tree_of(weight)
    part = np.append(np.random.default_rng(seed).random(62), [0.0, 1.0]).astype(np.float32)
    point = part * np.float32(priorities.total(levels))
    leaf, found = map(np.asarray, find(levels, point))
    np.testing.assert_array_equal(found, weight[leaf])
    assert (found > 0.0).all()
    end = np.cumsum(weight, dtype=np.float64)
    slack = 1e-5 * end[-1]  # rounding may move the borders a little
    assert (point <= end[leaf] + slack).all()
    assert (point >= end[leaf] - weight[leaf] - slack).all()


def test_flashbax_finds_the_same_leaves():
    weight = random_weights(5)
    theirs = sum_tree.init(LEAVES)
    theirs = sum_tree.set_batch_scan(theirs, jnp.arange(LEAVES), jnp.asarray(weight))
    part = jnp.linspace(0.001, 0.999, 500)
    levels = tree_of(weight)
    ours, _ = find(levels, part * priorities.total(levels))
    oracle = jax.vmap(sum_tree.sample, (None, None, 0))(theirs, None, part)
    assert (np.asarray(ours) == np.asarray(oracle)).mean() > 0.99  # borders may round apart
    assert (np.abs(np.asarray(ours) - np.asarray(oracle)) < 10).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31))
def test_assign_sets_leaves_and_leaves_nothing_to_drift(seed):
    weight, rng = random_weights(seed), np.random.default_rng(seed)
    levels = tree_of(weight)
    for _ in range(3):
        leaf = rng.integers(0, LEAVES, 64).astype(np.int32)
        leaf[:8] = leaf[8:16]  # some twice
        new = rng.exponential(size=64).astype(np.float32)
        levels = assign(levels, leaf, new)
        for i in np.unique(leaf):
            weight[i] = new[leaf == i].max() if weight[i] > 0.0 else 0.0
    np.testing.assert_array_equal(levels[0][:LEAVES], weight)
    check_sums(levels)
    # not a bit from those of a new tree
    jax.tree.map(np.testing.assert_array_equal, levels, tree_of(weight))


@pytest.mark.parametrize("start", [0, 1, 15, 16, 333, LEAVES - 40])
def test_refresh_of_a_range_is_the_refresh_of_all(start):
    weight = random_weights(7)
    levels = tree_of(weight)
    weight[start : start + 40] = 5.0
    leaves = levels[0].at[start : start + 40].set(5.0)
    jax.tree.map(
        np.testing.assert_array_equal,
        refresh((leaves, *levels[1:]), start, 40),
        tree_of(weight),
    )
