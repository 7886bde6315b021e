"""Intervals over seeds: they cover the truth as often as they say, also where seeds are few."""

from __future__ import annotations

import numpy as np
import pytest

from rondel.run.analysis.interval import interval

TIMES = 1_000


def test_the_interquartile_mean_leaves_a_quarter_out_at_each_end() -> None:
    # of 8 the two lowest and the two highest go: (3 + 4 + 5 + 6) / 4; of 3 none goes
    for seeds, mean in (([1.0, 2, 3, 4, 5, 6, 7, 1_000], 4.5), ([1.0, 2, 6], 3.0)):
        assert interval(np.array([seeds]), iqm=True)[0] == mean


def test_of_few_seeds_it_is_students() -> None:
    # deviation 1, error 1 / sqrt(3), t of 2 degrees of freedom 4.303
    middle, low, high = interval(np.array([[1.0, 2.0, 3.0]]), iqm=False)
    assert (middle[0], low[0], high[0]) == pytest.approx((2.0, 2 - 2.4843, 2 + 2.4843), abs=1e-3)
    # of 4 one goes at each end, and counts as its neighbour: 2, 2, 3, 3, whose deviation is
    # sqrt(1/3); error sqrt(1/3) * sqrt(4) / 2, t of one degree of freedom
    middle, low, _ = interval(np.array([[0.0, 2.0, 3.0, 99.0]]), iqm=True)
    assert (middle[0], low[0]) == pytest.approx((2.5, 2.5 - 12.706 * 3**-0.5), abs=1e-3)


@pytest.mark.parametrize("seeds", [1, 5, 12])
def test_seeds_that_are_all_alike_leave_no_doubt(seeds: int) -> None:
    assert np.ravel(interval(np.full((2, seeds), 500.0), iqm=False)).tolist() == [500.0] * 6


def covered(values: np.ndarray, truth: float, iqm: bool) -> float:
    """The part of the rows whose interval holds it."""
    _, low, high = interval(values, iqm)
    return float(((low <= truth) & (high >= truth)).mean())


@pytest.mark.parametrize("iqm", [False, True])
@pytest.mark.parametrize("seeds", [2, 3, 5, 8, 10, 20])
def test_an_interval_covers_the_truth_about_as_often_as_it_says(seeds: int, iqm: bool) -> None:
    # of 1,000 times 950, with a deviation of 7; a trimmed mean of few is known to cover 92 %
    normal = np.random.default_rng(seeds).normal(size=(TIMES, seeds))
    assert 0.90 < covered(normal, 0.0, iqm) < 0.98


@pytest.mark.parametrize(("seeds", "least"), [(2, 0.86), (5, 0.84), (10, 0.88), (20, 0.90)])
def test_skewed_returns_are_covered_almost_as_often(seeds: int, least: float) -> None:
    skewed = np.random.default_rng(seeds).exponential(size=(TIMES, seeds))
    assert covered(skewed, 1.0, iqm=False) > least


@pytest.mark.parametrize("iqm", [False, True])
def test_a_ceiling_that_most_seeds_reach_does_not_widen_it_beyond_what_was_seen(iqm: bool) -> None:
    returns = np.array([500.0] * 8 + [499.0, 469.0])
    middle, low, high = interval(returns[None], iqm)
    assert 469 <= low[0] <= middle[0] <= high[0] <= 500
    assert iqm or low[0] < 493


def test_returns_that_all_or_nothing_decides_are_covered_almost_as_often() -> None:
    # three of four seeds reach 500, the others 10: the mean is 377.5
    either = np.where(np.random.default_rng(0).random((TIMES, 20)) < 0.75, 500.0, 10.0)
    assert covered(either, 377.5, iqm=False) > 0.88
