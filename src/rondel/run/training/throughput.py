"""Speed and time of a run, and the records of its rounds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from rondel.execution.loop.rounds import Report
from rondel.run.display.round_record import Goal, RoundRecord
from rondel.run.profiling.live import LiveUtilisation
from rondel.run.session.run import Run


class Throughput:
    """Makes the records of a run's rounds from reports and the clock.

    The speed is unknown until a second call has come back, since the first one compiles. It is
    measured anew once every program has run: a warm-up, which learns nothing, is faster.
    """

    def __init__(self, run: Run, began: float) -> None:
        self._run, self._began = run, began
        goal, until = run.limits.steps, run.limits.until_return
        self._goal = Goal(
            run.setup.name, run.setup.env_id, goal, None if until == float("inf") else until
        )
        self._first: tuple[float, int] | None = None  # time and steps where the speed begins
        self._steady = False  # whether every program had run by then
        self._last = (began, run.steps)  # time and steps when the last call came back

    @cached_property
    def _utilisation(self) -> LiveUtilisation:
        return LiveUtilisation(self._run)

    def records(self, reports: Sequence[Report]) -> Iterator[RoundRecord]:
        """The records of rounds that one call did: each took as long as it has steps."""
        run, (before, done) = self._run, self._last
        now, steps = self._last = time.monotonic(), run.steps
        if self._first is None or (run.ring.base and not self._steady):
            self._first, self._steady = self._last, run.ring.base is not None
        for report in reports:
            part = (report.steps - done) / (steps - done) if steps > done else 1.0
            seconds = round(before + part * (now - before) - self._began, 3)
            clock = (seconds, self.steps_per_second, self._goal, self._steady)
            yield RoundRecord(*report, *clock, self._utilisation.look())

    @property
    def steps_per_second(self) -> float | None:
        """Steps per second; None while that is unknown."""
        if self._first is None or self._last[0] <= self._first[0]:
            return None
        seconds, steps = (now - first for now, first in zip(self._last, self._first, strict=True))
        return round(steps / seconds, 1) or None

    def result(self) -> dict[str, Any]:
        """What `--json` prints."""
        run = self._run
        return {
            "algorithm": run.setup.name,
            "env": run.setup.env_id,
            "seed": run.setup.task.seed,
            "steps": run.steps,
            "episodes": run.episodes,
            "return_mean": run.return_mean,
            "eval_return": run.evaluation.mean if run.evaluation else None,
            "steps_per_second": self.steps_per_second,
            "seconds": round(time.monotonic() - self._began, 3),
            "path": str(run.path),
        }
