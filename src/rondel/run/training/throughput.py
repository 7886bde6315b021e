"""How long a run has taken and how quick it is, in rows, progress and its result."""

from __future__ import annotations

import time
from typing import Any

from rondel.execution.loop.rounds import Report
from rondel.run.display.display import Progress
from rondel.run.policy.evaluation import Evaluation
from rondel.run.profiling.live import LiveUtilisation
from rondel.run.session.run import Run


class Throughput:
    """Speed and time of a run, and the rows that tell of them.

    Compilation is not speed, so of a run that is one call none is known. As soon as every program
    has run, it is that since then: what a warm-up does, which learns nothing, is no measure of it.
    """

    def __init__(self, run: Run, began: float) -> None:
        self.run, self.began = run, began
        self.first: tuple[float, int] | None = None  # when the first call came back, with how much
        self.settled = False  # has every program run? Then `first` is when that was
        self.last = self._before = (began, run.steps)
        self._window = LiveUtilisation(run)

    def tick(self) -> None:
        now = time.monotonic()
        if self.first is None or (self.run.ring.base and not self.settled):
            self.first = (now, self.run.steps)
            self.settled = self.run.ring.base is not None
        if self.run.steps != self.last[1]:  # another call has come back
            self._before = self.last
            self.last = (now, self.run.steps)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def steps_per_second(self) -> float:
        if self.first is None or self.last[0] <= self.first[0]:
            return 0.0
        return (self.last[1] - self.first[1]) / (self.last[0] - self.first[0])

    def _when(self, report: Report) -> float:
        """Seconds until a round was done. Of those that one call did, each took as long a step."""
        (began, steps), (ended, more) = self._before, self.last
        part = (report.steps - steps) / (more - steps) if more > steps else 1.0
        return began + part * (ended - began) - self.began

    def progress(self, report: Report) -> Progress:
        run = self.run
        goal = run.limits.until_return
        return Progress(
            run.setup.name,
            run.setup.env_id,
            report.steps,
            run.limits.steps,
            self.seconds,
            self.steps_per_second,
            report.episodes,
            report.return_mean,
            report.length_mean,
            report.metrics,
            None if goal == float("inf") else goal,
            self._window.look(),
            settled=self.settled,
        )

    def row(self, report: Report) -> dict[str, Any]:
        return {
            "round": report.round,
            "steps": report.steps,
            "episodes": report.episodes,
            "seconds": round(self._when(report), 3),
            "steps_per_second": round(self.steps_per_second, 1) or None,
            "return_mean": report.return_mean,
            "length_mean": report.length_mean,
            **report.metrics,
        }

    def result(self, evaluation: Evaluation | None) -> dict[str, Any]:
        """What `--json` prints."""
        run = self.run
        return {
            "algorithm": run.setup.name,
            "env": run.setup.env_id,
            "seed": run.setup.task.seed,
            "steps": run.steps,
            "episodes": run.episodes,
            "return_mean": run.return_mean,
            "eval_return": evaluation.mean if evaluation else None,
            "steps_per_second": round(self.steps_per_second, 1) or None,
            "seconds": round(self.seconds, 3),
            "path": str(run.path),
        }
