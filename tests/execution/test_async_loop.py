"""Free runs: what arrives first is learned from first, and nothing is older than the bound."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from execution.test_equality import ENV, task
from marks import few_of
from rondel.envs.registry import make
from rondel.execution.backends.inline import Inline
from rondel.execution.backends.threads import Threads
from rondel.execution.loop import async_loop
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.sync_loop import Limits, run_rounds
from rondel.plan.parser import parse
from rondel.types import HostWorld

PLANS = (
    "actor*2 | learner",
    "actor*2 | memory*2 | gradient+update",
    "actor+memory+gradient*2 | update",
)


class Sleepy:
    """Lanes whose every step takes long."""

    def __init__(self, env: Any, seconds: float) -> None:
        self._env, self._seconds = env, seconds
        self.reset, self.close = env.reset, env.close

    def step(self, action: Any) -> Any:
        time.sleep(self._seconds)
        return self._env.step(action)


def with_straggler(world: HostWorld, seconds: float) -> HostWorld:
    """The first lanes are slow."""

    def build(b: int, first_lane: int) -> Any:
        env = world.make(b, first_lane)
        return Sleepy(env, seconds) if first_lane == 0 else env

    return world._replace(make=build)


RUNS = list(itertools.product([Inline, Threads], PLANS, [0, 2]))
QUICK = [(Inline, plan, 2) for plan in PLANS] + [(Threads, PLANS[0], 0), (Threads, PLANS[1], 2)]


@pytest.mark.parametrize(("backend", "plan", "lag"), few_of(RUNS, QUICK))
def test_the_bound_holds_and_every_step_counts(
    backend: Callable[[], Any], plan: str, lag: int
) -> None:
    ring = Ring(task("dqn"), parse(plan, lag, free=True), backend())
    try:
        reports = list(run_rounds(ring, Limits(1_500)))
    finally:
        ring.close()
    assert ring.steps >= 1_500
    bound = lag + 0.5 if "gradient*2" in plan else lag  # there a version is half a round
    assert max(report.metrics["policy/lag_max"] for report in reports) <= bound
    assert all(np.isfinite(report.metrics["policy/lag"]) for report in reports)
    per_round = np.diff([0, *(report.steps for report in reports)])
    most = 16 * 4 if "gradient*2" not in plan else 8 * 4  # there a round is one copy's
    assert (per_round <= most).all()
    assert (per_round > most / 2).all()  # the rest only reset
    assert "loss/q" in reports[-1].metrics


def test_a_straggler_does_not_stop_a_free_run() -> None:
    world = with_straggler(make("gymnasium:CartPole-v1"), 0.03)
    ring = Ring(task("dqn", world), parse("actor*2 | learner", 4, free=True), Threads())
    try:
        reports = list(run_rounds(ring, Limits(2_500)))
        slow, quick = ring.free.rounds_begun
    finally:
        ring.close()
    assert quick > 1.5 * slow
    assert max(report.metrics["policy/lag_max"] for report in reports) <= 4
    late = [report.metrics["policy/late"] for report in reports]
    assert late == sorted(late)
    assert late[-1] <= slow  # nobody else is


class Overtaken(Inline):
    """The first copy's flights land when three lessons are over since they began."""

    ring: Ring

    def wait(self, promises: Any) -> list[int]:
        free, ready = self.ring.free, super().wait(promises)
        slow = [
            i for i, f in enumerate(free.in_flight) if not f.copy and free.version < f.version + 3
        ]
        return [i for i in ready if i not in slow]


def test_what_a_straggler_brings_is_used_and_counted_as_late() -> None:
    backend = Overtaken()
    ring = backend.ring = Ring(task("dqn"), parse("actor*2 | learner", 4, free=True), backend)
    late = [report.metrics["policy/late"] for report in run_rounds(ring, Limits(250))]
    # Both begin two flights with version 0, and the second copy two more whenever two have landed,
    # with versions 0, 1 and 2. At the end of the third lesson (of 1, 1) it has landed those of 2,
    # which are learned from; only then do the first copy's two of 0 land, behind 1 and 2.
    assert late == [0, 0, 0, 0, 2]


def test_late_is_who_comes_after_a_newer_one_not_with_it(monkeypatch: Any) -> None:
    # versions 0 and 3 together: nobody was before them; 2 and 4: 3 was before 2; 4 and 5: in order
    ring = Ring(task("dqn"), parse("actor*2 | learner", 5, free=True), Inline())
    run = async_loop.AsyncLoop(ring)
    monkeypatch.setattr(async_loop, "gather_parts", lambda made: None)
    monkeypatch.setattr(async_loop, "collect_report", lambda *_: SimpleNamespace(metrics={}))
    late = []
    for versions in ((0, 3), (2, 4), (4, 5)):
        flights: Any = [
            async_loop.InFlightRollout(i, version, None) for i, version in enumerate(versions)
        ]
        report = run._continue_learning(async_loop.LearnerStep(flights, (x for x in ()), None))
        late.append(report.metrics["policy/late"])
    assert late == [0, 1, 1]


def test_nobody_is_late_who_is_alone() -> None:
    ring = Ring(task("dqn", ENV), parse("actor | learner", 2, free=True), Threads())
    try:
        reports = list(run_rounds(ring, Limits(600)))
    finally:
        ring.close()
    assert reports[-1].metrics["policy/lag_max"] > 0
    assert {report.metrics["policy/late"] for report in reports} == {0}


def test_a_free_run_goes_on_where_its_iteration_stopped() -> None:
    ring = Ring(task("dqn", ENV), parse("actor*2 | learner", 1, free=True), Threads())
    try:
        first = next(run_rounds(ring, Limits(10_000)))
        flying = ring.free._outstanding()
        second = next(run_rounds(ring, Limits(10_000)))
        assert all(flying[0] is not flight for flight in ring.free._outstanding())
    finally:
        ring.close()
    assert (first.round, second.round) == (0, 1)


def test_a_free_run_can_be_saved_and_go_on() -> None:
    plan = parse("actor+memory+gradient*2 | update", 1, free=True)
    ring = Ring(task("dqn"), plan)
    for report, _ in zip(run_rounds(ring, Limits(10_000)), range(7), strict=False):
        saved = (
            *jax.tree.map(np.array, (ring.tree(), ring.stored())),
            report.round + 1,
            report.steps,
        )
    other = Ring(task("dqn"), plan)
    other.restore(*saved)
    begun = max(ring.free.rounds_begun)
    assert next(run_rounds(other, Limits(10_000))).round == saved[2]
    assert min(other.free.rounds_begun) > begun  # else keys would come again
