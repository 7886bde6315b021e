"""Means over the rows that count."""

import jax.numpy as jnp
import numpy as np
import pytest

from rondel.ops.statistics import masked_mean, standardise

VALID = np.array([True, False, True, True])


def test_rows_that_are_not_valid_do_not_count():
    # (1 + 3 + 5) / 3 = 3, whatever the second is
    for odd in (100.0, np.nan, np.inf):
        x = jnp.array([1.0, odd, 3.0, 5.0])
        assert float(masked_mean(x, VALID)) == 3.0


def test_mean_of_nothing_is_zero():
    assert float(masked_mean(jnp.array([np.nan, 2.0]), np.zeros(2, bool))) == 0.0


def test_mean_over_all_axes():
    x = jnp.arange(6.0).reshape(2, 3)
    valid = np.array([[True, True, False], [False, False, True]])
    assert float(masked_mean(x, valid)) == pytest.approx((0 + 1 + 5) / 3)


def test_standardise_by_hand():
    # mean 3, deviations -2, 0, 2, variance (4 + 0 + 4) / 3, so 2 / sqrt(8/3) = 1.2247449
    for odd in (100.0, np.nan):
        y = np.asarray(standardise(jnp.array([1.0, odd, 3.0, 5.0]), VALID))
        np.testing.assert_allclose(y[VALID], [-1.2247449, 0.0, 1.2247449], rtol=1e-6)


def test_standardise_of_equal_rows_is_zero_and_not_noise():
    x = jnp.full(4, 2.0)
    assert (np.asarray(standardise(x, VALID)) == 0.0).all()
    assert np.isfinite(standardise(x, np.zeros(4, bool))).all()
