"""The limits and the evaluations of a run, new or resumed, checked."""

from __future__ import annotations

from rondel.errors import RondelError
from rondel.execution.loop.sync_loop import Limits
from rondel.run.storage.metadata import SavedRun


def check_limits(steps: int, until_return: float | None) -> Limits:
    """Stop after `steps`, or once the mean return reaches `until_return`."""
    goal = float("inf") if until_return is None else until_return
    check_integer("steps", steps, 1)
    if goal != goal:
        raise RondelError("until_return must be a number, got nan.")
    return Limits(steps, goal)


def resumed_limits(
    before: SavedRun, steps: int | None = None, until_return: float | None = None
) -> Limits:
    """The limits of a resumed run: as before, unless given."""
    goal = before.until_return if until_return is None else until_return
    return check_limits(before.total_steps if steps is None else steps, goal)


def check_evaluation(episodes: int, every: int) -> tuple[int, int]:
    """How many greedy episodes a run plays, and every how many steps besides at its end."""
    check_integer("eval_episodes", episodes, 0, 31)
    check_integer("eval_every", every, 0)
    if every and not episodes:
        raise RondelError(f"eval_every={every} needs eval_episodes of 1 or more, got 0.")
    return episodes, every


def resumed_evaluation(
    before: SavedRun, episodes: int | None = None, every: int | None = None
) -> tuple[int, int]:
    """The evaluations of a resumed run: as before, unless given."""
    episodes = before.eval_episodes if episodes is None else episodes
    if every is None:
        every = before.eval_every if episodes else 0
    return check_evaluation(episodes, every)


def check_integer(name: str, value: int, least: int, bits: int = 63) -> None:
    """Refuse what is not an integer from `least` on, below 2**bits."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**bits:
        raise RondelError(
            f"{name} must be an integer from {least} to 2**{bits} - 1, got {value!r:.40}."
        )
