"""The middle of some seeds, and where that of all seeds lies in 95 of 100 cases.

Few seeds say little of how much seeds differ. Below ten seeds it is Student's t; from there on a
bootstrap, whose percentiles lie as much further out as Student's t is wider than a normal
distribution (Hesterberg, What Teachers Should Know about the Bootstrap, arXiv 1411.5279). Plain
percentiles cover 51 % at two seeds and 84 % at five. Measuring each draw by its own error covers as
well, but not where many seeds share a ceiling: there some draws have no error.
"""

from __future__ import annotations

import math

import numpy as np

FEWEST_IQM = 4
"""Of fewer seeds none is left out: their interquartile mean is the mean."""

_ENOUGH = 10  # seeds for a bootstrap
_RESAMPLES = 4_000
# 97.5 % of Student's t by degrees of freedom, from 1 on
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306)


def interval(returns: np.ndarray, iqm: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[places, seeds] -> middle, low, high [places]; of a single seed nothing else is known."""
    seeds = returns.shape[-1]
    middle, error = _studied(returns, iqm)
    if seeds == 1:
        return middle, middle, middle
    if seeds < _ENOUGH:
        width = _T[seeds - 2 * _left_out(seeds, iqm) - 2] * error
        return middle, middle - width, middle + width
    draws = np.random.default_rng(0).integers(seeds, size=(_RESAMPLES, seeds))
    again, _ = _studied(returns[:, draws], iqm)
    tail = 100 * _tail(seeds)
    low, high = np.percentile(again, [tail, 100 - tail], axis=-1)
    return middle, low, high


def _tail(seeds: int) -> float:
    """The share of draws beyond either end."""
    z, freedom = 1.959964, seeds - 1
    # Student's t by its expansion around the normal one: to two digits where there are enough
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    far = t * math.sqrt(seeds / (seeds - 1))  # draws vary by that much less than seeds do
    return 0.5 * math.erfc(far / math.sqrt(2))


def _studied(values: np.ndarray, iqm: bool) -> tuple[np.ndarray, np.ndarray]:
    """[..., seeds] -> their middle and its standard error (of a trimmed mean: Tukey, McLaughlin).

    What is left out at an end is counted there as the last that is not.
    """
    n = values.shape[-1]
    out = _left_out(n, iqm)
    ordered = np.sort(values, -1)
    kept = ordered[..., out : n - out]
    as_kept = np.clip(ordered, kept[..., :1], kept[..., -1:])
    spread = as_kept.std(-1, ddof=1) if n > 1 else np.zeros(values.shape[:-1])
    return np.asarray(kept.mean(-1)), np.asarray(spread * np.sqrt(n) / (n - 2 * out))


def _left_out(seeds: int, iqm: bool) -> int:
    """How many at each end."""
    return seeds // 4 if iqm else 0


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """The mean of the middle half: of n, a quarter of n, rounded down, is left out at each end."""
    return _studied(values, iqm=True)[0]
