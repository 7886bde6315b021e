"""The cost of recovery snapshots without any fault: one run with and without them, in turns.

Two equal runs differ by some percent for as long as they live, more than snapshots cost. So both
turns have the same processes, and snapshots are switched on and off between rounds. A turn with
them goes from one snapshot to the next but one; the turn without, before or after it at random,
has as many rounds. Each pair gives a ratio, and the interval is over all pairs of several runs.
CPU time is the cost on a busy machine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from cases import Case
from census import Census, cpu_seconds

from rondel.execution.backends.recovery.events import SnapshotsFailed
from rondel.run.analysis.interval import interval

HEAD = [
    "| run | on | runs | pairs of turns | seconds of a turn | time of a step | 95 % interval "
    "| CPU time of a step | 95 % interval |",
    "|---|---|---|---|---|---|---|---|---|",
]
SECONDS = 240.0  # of all runs of a row
RUNS = 3
STATES = 2  # kept in a turn
RESTARTS = 20  # what a run has by itself


class Spent(NamedTuple):
    seconds: float
    busy: float  # CPU seconds of all processes
    steps: int


def cost(case: Case, on: str, seconds: float) -> str:
    """A row: with snapshots against without."""
    with _room(on):
        pairs = [pair for seed in range(RUNS) for pair in _run(case, on, seconds / RUNS, seed)]
    told = []
    for a_step in (lambda s: s.seconds / s.steps, lambda s: s.busy / s.steps):
        ratios = np.array([[a_step(kept) / a_step(plain) for kept, plain in pairs]])
        middle, low, high = (x.item() for x in interval(ratios, iqm=True))
        told.append(f"{middle:.3f} | {low:.3f} to {high:.3f}")
    turn = np.median([kept.seconds for kept, _ in pairs])
    return f"| {case.name} | {on} | {RUNS} | {len(pairs)} | {turn:.1f} | {' | '.join(told)} |"


def _run(case: Case, on: str, seconds: float, seed: int) -> list[tuple[Spent, Spent]]:
    """Pairs of turns of one run: with snapshots, and without."""
    coin, census, pairs = random.Random(seed), Census(), []
    with case._replace(steps=10**12).start(on, restarts=RESTARTS, seed=seed) as run:
        runner = Runner(run, census)
        runner.warm_up()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if coin.random() < 0.5:
                kept = runner.kept()
                pairs.append((kept[0], runner.plain(kept[1])))
            else:  # as many rounds as the last turn had: they differ by a round or two
                plain = runner.plain(runner.rounds)
                pairs.append((runner.kept()[0], plain))
    return pairs


@contextmanager
def _room(on: str) -> Iterator[None]:
    if on != "ray":
        yield
        return
    import ray

    ray.init("local", num_cpus=6, include_dashboard=False, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


class Runner:
    """A run that goes on for a turn at a time."""

    def __init__(self, run: Any, census: Census) -> None:
        self._run, self._census, self._reports = run, census, run.rounds()
        self._backend = run.ring.backend
        self._logs = [c.log for c in self._backend._copies if c.log.has_snapshots]
        self.rounds = 0  # of the last turn that kept

    def warm_up(self) -> None:
        """Run until it learns and all programs are compiled, and find the length of a turn."""
        while not next(self._reports).metrics:
            pass
        self.kept()

    def kept(self) -> tuple[Spent, int]:
        """A turn with snapshots, from one to another -> and its number of rounds."""
        self._switch(True)
        base, states, rounds = self._base(), 0, 0
        before = self._now()
        while states < STATES:
            next(self._reports)
            rounds += 1
            if self._base() is not base:
                base, states = self._base(), states + 1
        self.rounds = rounds
        return self._since(before), rounds

    def plain(self, rounds: int) -> Spent:
        """A turn without snapshots."""
        self._switch(False)
        before = self._now()
        for _ in range(rounds):
            next(self._reports)
        return self._since(before)

    def _base(self) -> Any:
        """The newest snapshot; those of all copies are taken at once."""
        return self._logs[0].base

    def _switch(self, on: bool) -> None:
        """Between two rounds: take snapshots from now on, the first at once; or drop all."""
        for log in self._logs:
            log.has_snapshots, log.base, log.answered = on, None, []
        self._backend.state.restarts = RESTARTS if on else 0
        self._backend.recovery.tell(SnapshotsFailed)
        if on:
            self._backend.settled(now=True)
            assert self._base() is not None

    def _now(self) -> Spent:
        return Spent(time.monotonic(), cpu_seconds(self._census), self._run.steps)

    def _since(self, before: Spent) -> Spent:
        return Spent(*(b - a for a, b in zip(before, self._now(), strict=True)))
