"""When a run ends, if that can be."""

from __future__ import annotations

from rondel.errors import RondelError
from rondel.execution.loop.sync_loop import Limits
from rondel.run.storage.metadata import SavedRun


def check_limits(steps: int, until_return: float | None) -> Limits:
    """So many steps, or this mean return if it is asked for."""
    goal = float("inf") if until_return is None else until_return
    if not isinstance(steps, int) or not 1 <= steps < 2**63:
        raise RondelError(
            f"steps={steps!r:.40} is no run: a whole number, 1 or more and below 2**63, would work."
        )
    if goal != goal:
        raise RondelError("until_return=nan can't be reached: take a number, or leave it out.")
    return Limits(steps, goal)


def resumed_limits(
    before: SavedRun, steps: int | None = None, until_return: float | None = None
) -> Limits:
    """Those of a run that goes on: as they were, unless asked otherwise."""
    goal = before.until_return if until_return is None else until_return
    return check_limits(before.total_steps if steps is None else steps, goal)
