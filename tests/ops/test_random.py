"""Random numbers: the very words of Threefry, the right distributions, every lane on its own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32
from scipy import stats

from rondel.ops import random

FF = 0xFFFFFFFF


def data(keys):
    return np.asarray(jax.random.key_data(keys))


@functools.partial(jax.jit, static_argnums=0)
def many_keys(n, seed=1):
    return random.fold(random.key(seed)[None], jnp.arange(n))


# unjitted, every addition of Threefry is a program of its own
bits, uniform, normal = (
    jax.jit(f, static_argnums=1) for f in (random.bits, random.uniform, random.normal)
)
fold = jax.jit(random.fold)


# The known answers of the Random123 suite for threefry2x32 with 20 rounds.
@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((FF, FF), (FF, FF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_known_answers(key, counter, words):
    got = jax.jit(random.threefry)(*(jnp.uint32(word) for word in (*key, *counter)))
    assert tuple(int(word) for word in got) == words


@pytest.mark.parametrize("seed", [0, 1, 2**31 + 7, 2**32 - 1])
def test_a_key_is_that_of_jax(seed):
    assert (data(random.key(seed)) == data(jax.random.key(seed, impl="threefry2x32"))).all()


def test_fold_is_one_block_of_threefry():
    key = random.key(7)
    for one, two in [(0, 0), (3, 0), (0, 3), (5, 2**32 - 1)]:
        counter = jnp.array([one, two], jnp.uint32)
        assert (data(fold(key, *counter)) == threefry_2x32(data(key), counter)).all()
    # jax folds a number in as the counter (0, number)
    assert (data(fold(key, 0, 99)) == data(jax.random.fold_in(key, 99))).all()


def test_fold_broadcasts_and_every_pair_of_numbers_has_its_own_key():
    keys = fold(random.key(0)[None, None], jnp.arange(20)[:, None], jnp.arange(30)[None])
    assert keys.shape == (20, 30)
    assert (data(keys)[4, 9] == data(fold(random.key(0), 4, 9))).all()
    assert len({tuple(words) for words in data(keys).reshape(-1, 2)}) == 600


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_bits_are_threefry_of_a_counter(count):
    keys = many_keys(3)
    half = -(-count // 2)
    counters = jnp.concatenate([jnp.arange(half), jnp.zeros(half)]).astype(jnp.uint32)
    expected = [threefry_2x32(key, counters)[:count] for key in data(keys)]
    got = bits(keys, count)
    assert got.dtype == jnp.uint32
    assert (np.asarray(got) == np.stack(expected)).all()


@pytest.mark.parametrize("draw", [bits, uniform, normal])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
@pytest.mark.parametrize("count", [1, 3])
def test_shapes_and_that_a_lane_has_its_own_numbers(draw, shape, count):
    keys = many_keys(int(np.prod(shape))).reshape(shape)
    got = np.asarray(draw(keys, count))
    assert got.shape == (*shape, count)
    for where in np.ndindex(shape):
        assert (got[where] == np.asarray(draw(keys[where], count))).all()


@pytest.mark.parametrize("draw", [bits, uniform, normal])
def test_the_same_numbers_when_mapped(draw):
    keys = many_keys(5)
    plain = np.asarray(draw(keys, 3))
    assert (np.asarray(jax.vmap(lambda key: draw(key, 3))(keys)) == plain).all()


@pytest.mark.parametrize(("keys", "count"), [(1, 100_000), (100_000, 1), (1_000, 100)])
def test_uniform_numbers_are_uniform(keys, count):
    x = np.asarray(uniform(many_keys(keys), count)).astype(np.float64)
    assert x.min() >= 0.0
    assert x.max() < 1.0
    assert stats.kstest(x.reshape(-1), "uniform").pvalue > 0.01
    # of 100,000 numbers the mean has a deviation of sqrt(1/12 / 1e5) = 0.0009
    assert abs(x.mean() - 0.5) < 0.003
    assert abs(x.var() - 1 / 12) < 0.001


@pytest.mark.parametrize(("keys", "count"), [(1, 100_000), (100_000, 1)])
def test_normal_numbers_are_normal(keys, count):
    x = np.asarray(normal(many_keys(keys, 2), count)).astype(np.float64)
    assert stats.kstest(x.reshape(-1), "norm").pvalue > 0.01
    assert abs(x.mean()) < 0.01
    assert abs(x.std() - 1.0) < 0.01


def test_numbers_of_a_lane_and_of_neighbours_are_not_correlated():
    x = np.asarray(uniform(many_keys(50_000), 4)).astype(np.float64)
    across = np.corrcoef(np.concatenate([x, np.roll(x, 1, 0)], 1).T)
    # the deviation of a correlation of 50,000 pairs is 1 / sqrt(50,000) = 0.0045
    assert np.abs(across - np.eye(8)).max() < 0.02


@pytest.mark.parametrize("word", [0, FF])
def test_the_ends_of_the_range(monkeypatch, word):
    monkeypatch.setattr(random, "bits", lambda keys, count: jnp.full((1, count), word, jnp.uint32))
    u, z = random.uniform(many_keys(1), 1), random.normal(many_keys(1), 1)
    # 23 digits: the greatest number is 1 - 2**-23
    assert float(u[0, 0]) == (0.0 if word == 0 else 1.0 - 2.0**-23)
    assert np.isfinite(z).all()
    assert np.abs(z) > 4.9  # Phi(-5.0) = 2.9e-7, about 2**-22
