"""The loop around the ring: its pace, its end, and what it takes from host environments."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from execution import toy
from execution.test_equality import ENV, SEED, assert_equal, run, task
from rondel.errors import RondelError
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.sync_loop import Limits, NotFinite, is_finished, next_pace, run_rounds
from rondel.plan.parser import parse


def test_the_pace_follows_the_clock_within_bounds() -> None:
    assert next_pace(1, 0.01, most=64) == 2  # never more than twice as many at once
    assert next_pace(8, 0.8, most=64) == 2  # a call should take 0.2 s
    assert next_pace(8, 100.0, most=64) == 1
    pace = 1
    for _ in range(2_000):  # calls that take no time at all
        pace = next_pace(pace, 0.0, most=64)
    assert pace == 64


class Reusing(toy.HostTwin):
    """An environment that writes every step into the same arrays, as shared memory would."""

    buffers: Any = None

    def put(self, step: Any) -> Any:
        if self.buffers is None:
            self.buffers = jax.tree.map(np.array, step)
        jax.tree.map(np.copyto, self.buffers, step)
        return self.buffers

    def reset(self, seeds: Any) -> Any:
        return self.put(super().reset(seeds))

    def step(self, action: Any) -> Any:
        return self.put(super().step(action))


def test_a_host_environment_may_reuse_its_arrays() -> None:
    new = run(Ring(task("dqn", toy.host_twin(ENV, SEED))), steps=600)
    reusing = run(Ring(task("dqn", toy.host_twin(ENV, SEED, Reusing))), steps=600)
    assert_equal(reusing, new)


def test_no_report_of_a_call_that_ends_in_nan_is_seen() -> None:
    """Else the state, which is past them all, could be saved as a good one."""
    ring = Ring(task("ppo"))
    learner = ring.learner()
    params = jax.tree.map(lambda x: x * np.nan, learner.inner.inner.params)
    broken = learner.inner._replace(inner=learner.inner.inner._replace(params=params))
    ring.update[0].restore({"learner": learner._replace(inner=broken)})
    with pytest.raises(NotFinite, match="is nan"):
        next(run_rounds(ring, Limits(10_000), at_a_time=8))


def test_a_goal_is_met_in_the_precision_that_the_program_has() -> None:
    ring = Ring(task("ppo"))
    ring.recent = ring.recent._replace(returns=np.full(100, 0.7, np.float32), ended=np.int32(100))
    goal = float(ring.recent.returns.mean())
    assert is_finished(ring, Limits(10_000, until_return=goal))
    assert list(run_rounds(ring, Limits(10_000, until_return=goal))) == []


def test_means_are_those_of_the_round_that_they_are_reported_with() -> None:
    window: list[float] = []
    for report in run_rounds(Ring(task("ppo")), Limits(4_000), at_a_time=16):
        window = [*window, *report.returns][-100:]
        if window:
            assert report.return_mean == pytest.approx(np.mean(window), rel=1e-5)
        else:
            assert report.return_mean is None


def test_rounds_in_flight_are_learned_from_before_new_ones_with_less_lag() -> None:
    late = Ring(task("dqn"), parse("all", lag=2))
    run(late, 300)
    ring = Ring(task("dqn"))
    ring.restore(late.tree(), late.stored(), late.round, late.steps)
    assert not ring.fused
    run(ring, late.steps + 300)
    assert ring.fused
    assert not ring.pending


def test_a_free_run_does_not_take_over_rounds_in_flight() -> None:
    late = Ring(task("dqn"), parse("actor*2 | learner", lag=2))
    run(late, 300)
    free = Ring(task("dqn"), parse("actor*2 | learner", lag=2, free=True))
    with pytest.raises(RondelError, match="2 rounds in flight"):
        free.restore(late.tree(), late.stored(), late.round, late.steps)
