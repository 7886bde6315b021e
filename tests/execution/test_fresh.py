"""Rounds that start new episodes: in every kind of environment, wherever it is."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from execution import toy
from execution.test_equality import ENV, LANES, SEED, run
from rondel.envs.registry import make
from rondel.execution.backends.threads import Threads
from rondel.execution.hostenv.partition import phases
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.sync_loop import run_round
from rondel.execution.stages.task import Task
from rondel.execution.telemetry.timing import STEPS
from rondel.memory.newest import newest
from rondel.plan.parser import parse
from rondel.types import Algorithm, Trajectory

OVERLAP, ROLLOUT = 2, 4  # no episode of CartPole is over in 4 steps


class Seen(NamedTuple):
    """What there was at a round's first row, and before it."""

    obs: Any
    first: Any
    before: Any  # did any row of the round before count?


def watcher(fresh: bool) -> Algorithm:
    """It learns nothing, and memory holds what it saw last."""

    def act(weights: Any, carry: Any, obs: Any, keys: Any, explore: bool) -> Any:
        return jnp.zeros(obs.shape[0], jnp.int32), carry, ()

    def prepare(weights: Any, tr: Trajectory) -> Any:
        return Seen(tr.obs[OVERLAP], tr.first[OVERLAP], tr.valid[:OVERLAP].any(0)), ()

    return Algorithm(
        init=lambda key: jnp.zeros(()),
        acting=lambda state: state,
        learning=lambda state: state,
        gradient=lambda variables, batch, key: (variables, jnp.float32(1), (), {}),
        update=lambda state, grads: state,
        act=act,
        prepare=prepare,
        memory=newest(),
        rollout=ROLLOUT,
        overlap=OVERLAP,
        fresh=fresh,
    )


def seen(env: Any, plan: str, fresh: bool = True) -> list[Any]:
    """Three rounds."""
    ring = Ring(Task(watcher(fresh), env, SEED, LANES, 8), parse(plan))
    rounds = []
    for _ in range(3):
        if ring.fused:
            run(ring, ring.steps + 1, at_a_time=1)
        else:
            run_round(ring)
        rounds.append(Seen(*map(np.asarray, ring.stored())))
    ring.close()
    return rounds


@pytest.mark.parametrize("env", ["jax", "twin", "gymnasium"])
@pytest.mark.parametrize("plan", ["all", "actor*2 | learner", "env*2 | policy+learner"])
def test_every_round_starts_other_episodes(env: str, plan: str) -> None:
    world = {
        "jax": lambda: ENV,
        "twin": lambda: toy.host_twin(ENV, SEED),
        "gymnasium": lambda: make("gymnasium:CartPole-v1"),
    }[env]()
    rounds = seen(world, plan)
    for one in rounds:
        assert one.first.all()
        assert not one.before.any()
    everything = np.concatenate([one.obs for one in rounds])
    assert len(np.unique(everything, axis=0)) == 3 * LANES
    if env != "gymnasium":
        for one, expected in zip(rounds, seen(ENV, "all"), strict=True):
            np.testing.assert_array_equal(one.obs, expected.obs)


def test_other_algorithms_go_on() -> None:
    rounds = seen(ENV, "all", fresh=False)
    assert not any(one.first.any() for one in rounds[1:])
    assert all(one.before.all() for one in rounds[1:])


def test_a_run_over_host_environments_goes_on_as_if_it_had_never_stopped() -> None:
    """What a lane sees depends on the seed and the round alone."""
    task = Task(watcher(True), make("gymnasium:CartPole-v1"), SEED, LANES, 8)
    whole, half = Ring(task), Ring(task)
    for _ in range(2):
        run_round(whole)
    run_round(half)
    other = Ring(task)
    other.restore(half.tree(), half.stored(), half.round, half.steps)
    run_round(other)
    np.testing.assert_array_equal(other.stored().obs, whole.stored().obs)


def test_to_wait_for_resets_is_to_wait_for_environments() -> None:
    task = Task(watcher(True), make("gymnasium:CartPole-v1"), SEED, LANES, 8)
    ring = Ring(task, parse("env | policy+learner"), Threads())
    for _ in range(3):
        run_round(ring)
    (_, told) = ring.timing_reports()[1][0]
    ring.close()
    waited = {(spent.stage, spent.kind): spent.times for spent in told.spent}
    halves = len(phases(ring.plan, LANES, 8, 0))
    # one for the reset before the first round, then a reset and the steps of each
    assert waited["env", STEPS] == 1 + 3 * (1 + halves * ROLLOUT)
