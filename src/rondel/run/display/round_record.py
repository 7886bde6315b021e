"""A run after a round, as metrics.jsonl, live.json, displays and hooks are given it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rondel.run.display.utilisation import Utilisation
from rondel.types import WINDOW

ROW = ("round", "steps", "episodes", "seconds", "steps_per_second", "return_mean", "length_mean")


class Goal(NamedTuple):
    """What a run trains, and until when."""

    algorithm: str
    env: str
    total_steps: int
    until_return: float | None = None


class RoundRecord(NamedTuple):
    """A run after a round; None is what is not known yet.

    What a hook adds to `metrics` appears wherever records go after it: there is no other list.
    """

    round: int
    steps: int  # so far: transitions, without the steps that only reset
    episodes: int  # so far
    returns: np.ndarray  # of the episodes that ended in this round, by step and lane
    lengths: np.ndarray
    metrics: dict[str, float]  # means over the round's draws; no losses while memory warms up
    return_mean: float | None  # of the last 100 episodes
    length_mean: float | None
    seconds: float  # since the run began, with those before it was resumed
    steps_per_second: float | None
    goal: Goal
    steady: bool = True  # whether all programs have run by now, so that this speed will last
    utilisation: Utilisation | None = None
    seed: int | None = None  # which it is, of several

    def row(self) -> dict[str, Any]:
        """A line of metrics.jsonl."""
        return {name: getattr(self, name) for name in ROW} | self.metrics

    @property
    def part(self) -> float:
        """The part of its steps that a run has done."""
        return min(self.steps / max(self.goal.total_steps, 1), 1.0)

    @property
    def seconds_left(self) -> float | None:
        """Seconds to go, once the speed is steady; 0 after the return that ends the run."""
        until, mean = self.goal.until_return, self.return_mean
        if until is not None and mean is not None and self.episodes >= WINDOW and mean >= until:
            return 0.0
        rest = max(self.goal.total_steps - self.steps, 0)
        return rest / self.steps_per_second if self.steady and self.steps_per_second else None
