"""How busy the machine is with others: a fixed piece of work, timed before and after each figure.

Absolute times are no facts on a shared machine, but the same work taking longer than it did a
minute ago says that someone else had the cores. Such a figure is measured again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

TOLERATED = 1.6  # times the best seen; a shared machine is seldom better than that
TRIES = 2


def calibrate() -> float:
    """Seconds for a loop of Python and a chain of matrix products on all cores."""
    matrix = np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32)
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        total = 0
        for i in range(400_000):
            total += i & 7
        for _ in range(12):
            matrix = np.tanh(matrix @ matrix * 1e-3)
        best = min(best, time.perf_counter() - began)
    return best


class Quiet:
    """Measures, and again where the machine was busier than it has been at its best."""

    def __init__(self) -> None:
        self.best = min(calibrate() for _ in range(3))

    def measure(self, run: Callable[[], float]) -> tuple[float, float]:
        """(figure, how many times slower than at its best the machine was around it)."""
        tries = [self._once(run)]
        while tries[-1][1] > TOLERATED and len(tries) < TRIES:
            print(f"  the machine was {tries[-1][1]:.2f} x slower than at its best: again")
            tries.append(self._once(run))
        return min(tries, key=lambda pair: pair[1])

    def _once(self, run: Callable[[], float]) -> tuple[float, float]:
        before = calibrate()
        figure = run()
        after = calibrate()
        self.best = min(self.best, before, after)
        return figure, max(before, after) / self.best
