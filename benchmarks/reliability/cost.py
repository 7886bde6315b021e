"""What keeping costs without any fault: runs that keep and runs that do not, by turns.

A pair is started, one of each, and each is idle in the other's turns; who is first changes from
turn to turn. A ratio is that of two neighbouring turns, so that what else the machine does meets
both. Two equal runs differ by some percent for as long as they live, so there are several pairs:
the interval is over these (Student's t). CPU time is what keeping takes whoever else is busy.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from cases import Case
from census import Census, cpu_seconds

from rondel.run.interval import interval

HEAD = [
    "| run | on | pairs | turns with a state kept | time of a step | 95 % interval "
    "| CPU time of a step | 95 % interval |",
    "|---|---|---|---|---|---|---|---|",
]
PAIRS, TURNS = 8, 8
SECONDS = 2.0  # of a turn: 1 s or 200 times what it takes lie between two states that are kept


def cost(case: Case, on: str, seconds: float) -> str:
    """A row: kept against not kept."""
    with _room(on):
        pairs = [_pair(case, on, seconds, i) for i in range(PAIRS)]
    ratios, states = zip(*pairs, strict=True)
    told = []
    for each in zip(*ratios, strict=True):
        middle, low, high = (x.item() for x in interval(np.array([each]), iqm=False))
        told.append(f"{middle:.3f} | {low:.3f} to {high:.3f}")
    kept = f"{sum(states)} of {PAIRS * TURNS}"
    return f"| {case.name} | {on} | {PAIRS} | {kept} | {' | '.join(told)} |"


def _pair(case: Case, on: str, seconds: float, number: int) -> tuple[tuple[float, float], int]:
    """Medians of the ratios of time and of CPU time, and how many turns had a state kept."""
    census, ratios, states = Census(), [], 0
    case = case._replace(steps=10**12)
    restarts = (20, 0) if number % 2 else (0, 20)
    with case.start(on, restarts=restarts[0]) as one, case.start(on, restarts=restarts[1]) as other:
        kept, plain = (one, other) if restarts[0] else (other, one)
        runners = Runner(kept, census), Runner(plain, census)
        for runner in runners:
            runner.warm_up()
        for turn in range(TURNS):
            spent = {}
            for runner in runners if turn % 2 else reversed(runners):
                base = runner.base()
                spent[runner] = runner.turn(seconds)
                states += runner.base() is not base
            time_, busy = (a / b for a, b in zip(*(spent[r] for r in runners), strict=True))
            ratios.append((time_, busy))
    time_, busy = np.median(ratios, 0).tolist()
    return (time_, busy), states


@contextmanager
def _room(on: str) -> Iterator[None]:
    """A cluster for two runs at a time."""
    if on != "ray":
        yield
        return
    import ray

    ray.init("local", num_cpus=12, include_dashboard=False, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


class Runner:
    """A run that goes on for a turn at a time."""

    def __init__(self, run: Any, census: Census) -> None:
        self._run, self._census, self._reports = run, census, run.rounds()
        self._left = time.monotonic()  # when it last became idle

    def base(self) -> Any:
        """The newest state that was kept, of any copy; None if there is none."""
        return next(
            (c.journal.base for c in self._run.ring.backend._copies if c.journal.base), None
        )

    def warm_up(self) -> None:
        """Until it learns, and has kept a state if it is one that keeps."""
        keeps = any(copy.journal.is_kept for copy in self._run.ring.backend._copies)
        while not next(self._reports).metrics or (keeps and self.base() is None):
            pass
        self._left = time.monotonic()

    def turn(self, seconds: float) -> tuple[float, float]:
        """Seconds, and CPU seconds of all processes, for a step."""
        keeper = self._run.ring.backend._keeper
        keeper._last += time.monotonic() - self._left  # its clock stood still meanwhile
        began, busy, before = time.monotonic(), cpu_seconds(self._census), self._run.steps
        while time.monotonic() - began < seconds:
            next(self._reports)
        spent = time.monotonic() - began, cpu_seconds(self._census) - busy
        self._left = time.monotonic()
        steps = self._run.steps - before
        return spent[0] / steps, spent[1] / steps
