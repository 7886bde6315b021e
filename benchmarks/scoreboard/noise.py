"""How busy the machine is with other work: a fixed piece of work, timed around each figure.

On a shared machine absolute times mean little. But if the same work takes longer than a minute ago,
others had the cores, and the figure is measured again.

The distance of the cores is measured too: those of a virtual machine may share a cache at one hour
and none at another, and programs with several threads get faster or slower by that.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from typing import NamedTuple

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


def apart(times: int = 100_000) -> float | None:
    """Nanoseconds until one core sees what another has written; None if there is only one.

    Two processes, each on a core of its own, count in turn in shared memory. About 40 of these are
    Python's, where cores share a cache.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        return None
    counter = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("i")
    parent, child = os.getpid(), os.fork()
    began = time.perf_counter()
    os.sched_setaffinity(0, {cores[0 if child else 1]})
    try:
        for nth in range(0 if child else 1, 2 * times, 2):
            tries = 0
            while counter[0] != nth:
                tries += 1
                if tries % 10_000 == 0 and child == 0 and os.getppid() != parent:
                    os._exit(1)  # nobody is left to count with
            counter[0] = nth + 1
    finally:
        if child == 0:
            os._exit(0)
        os.sched_setaffinity(0, cores)
    os.waitpid(child, 0)
    return (time.perf_counter() - began) / (2 * times) * 1e9


class Turn(NamedTuple):
    """A figure, and the state of the machine around it."""

    figure: float
    busy: float  # times slower than at its best
    apart: float | None = None  # its cores, in nanoseconds


class Quiet:
    """Measures, and repeats where the machine was much busier than at its best."""

    def __init__(self) -> None:
        self.best = min(calibrate() for _ in range(3))

    def measure(self, run: Callable[[], float]) -> Turn:
        """A figure; of two the one with less other work."""
        tries = [self._once(run)]
        while tries[-1].busy > TOLERATED and len(tries) < TRIES:
            print(f"  the machine was {tries[-1].busy:.2f} x slower than at its best: again")
            tries.append(self._once(run))
        return min(tries, key=lambda turn: turn.busy)

    def _once(self, run: Callable[[], float]) -> Turn:
        before = calibrate()
        figure = run()
        after = calibrate()
        self.best = min(self.best, before, after)
        return Turn(figure, max(before, after) / self.best, apart())
