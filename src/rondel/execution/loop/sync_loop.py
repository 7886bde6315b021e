"""The loop that drives a ring, round after round, up to a limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from rondel.errors import RondelError
from rondel.execution.loop.async_loop import AsyncLoop
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.rounds import (
    Report,
    collect_fused_reports,
    collect_report,
    dispatch_add,
    dispatch_learning,
    dispatch_rollout,
)
from rondel.execution.stages import episode_stats
from rondel.execution.telemetry.timing import CALLBACK, PYTHON, ROUNDS, STARTING
from rondel.execution.workers import fused

_SECONDS_PER_CALL = 0.2  # of a fused program, about: then its rounds can be shown, or stopped


class Limits(NamedTuple):
    """When a run ends: at the first round boundary at or past one of these."""

    steps: int
    until_return: float = float("inf")  # mean return of the last 100 episodes


class NotFinite(RondelError):
    """A loss or another metric became infinite or NaN."""


def run_rounds(
    ring: Ring, limits: Limits, at_a_time: int | None = None, advice: Callable[[], str] = str
) -> Iterator[Report]:
    """Run up to a limit and report each round.

    A fused ring runs several rounds per call: `at_a_time`, or as many as fit in 0.2 s. The numbers
    are the same. `advice` is added to the error if a loss is not finite.
    """
    n = at_a_time or 1
    ring.meter.mark("driver", STARTING)
    while not is_finished(ring, limits):
        started = time.monotonic()
        reports = run_next_rounds(ring, limits, n)
        spent = time.monotonic() - started
        # before any of them is reported: the ring is past them all, and must not be saved
        stop_if_not_finite(reports, advice)
        yield from reports
        ring.meter.mark("driver", CALLBACK)  # the caller has had the time since
        n = at_a_time or next_pace(n, spent, fused.max_rounds_per_call(ring.task))


def run_next_rounds(ring: Ring, limits: Limits, rounds: int) -> list[Report]:
    """The next round, or up to `rounds` of them in one call where the ring is fused."""
    if ring.plan.free and ring.free is None:
        ring.free = AsyncLoop(ring)
    if ring.plan.free:
        reports = [ring.free.next_report()]
    else:
        reports = run_fused_rounds(ring, limits, rounds) if ring.fused else [run_round(ring)]
    ring.backend.after_round()
    ring.take_baseline()
    ring.meter.mark("driver", PYTHON if ring.lowering.in_driver else ROUNDS)
    return reports


def next_pace(rounds: int, seconds: float, most: int) -> int:
    """How many rounds the next call should run, after one of `rounds` took `seconds`."""
    fits = rounds * _SECONDS_PER_CALL / max(seconds, 1e-6)
    return int(max(1, min(fits, 2 * rounds, most)))


def stop_if_not_finite(reports: list[Report], advice: Callable[[], str]) -> None:
    """Raise `NotFinite` for the first report with a metric that is infinite or NaN."""
    for report in reports:
        terms = [f"{k} is {v}" for k, v in report.metrics.items() if not math.isfinite(v)]
        if terms:
            raise NotFinite(
                f"Training stopped in round {report.round}, after {report.steps:,} steps, because "
                f"{', '.join(terms)}. {advice()}".strip()
            )


def is_finished(ring: Ring, limits: Limits) -> bool:
    """Has the run reached a limit?"""
    return is_over(ring.steps, ring.recent, limits)


def is_over(steps: int, recent: episode_stats.RecentEpisodes, limits: Limits) -> bool:
    """Has a run with these steps and episodes reached a limit?"""
    if steps >= limits.steps or math.isinf(limits.until_return):
        return steps >= limits.steps
    # in 32 bits, as a fused program compares them
    return bool(episode_stats.mean_return(recent) >= np.float32(limits.until_return))


def run_fused_rounds(ring: Ring, limits: Limits, rounds: int) -> list[Report]:
    """Up to `rounds` rounds in one program."""
    left = min(limits.steps - ring.steps, 2**31 - 1)
    until = limits.until_return
    call = ring.policy[0].compute_rounds(ring.recent, ring.round, rounds, left, until)
    return collect_fused_reports(ring, *ring.backend.get([call])[0])


def run_round(ring: Ring) -> Report:
    """Collect the next round's experience and learn from it.

    With lag k, round r acts with the weights of version max(0, r - k): k rounds are in flight while
    the learner works on the one before them.
    """
    while len(ring.pending) <= ring.plan.lag:
        ring.pending.append(dispatch_rollout(ring, ring.round + len(ring.pending)))
    made = ring.pending.popleft()
    dispatch_add(ring, made, ring.round)
    metrics = dispatch_learning(ring, made, ring.round)
    report = collect_report(ring, made, metrics)
    if ring.plan.lag:
        lag = float(min(ring.plan.lag, report.round))
        report.metrics.update({"policy/lag": lag, "policy/lag_max": lag})
    return report
