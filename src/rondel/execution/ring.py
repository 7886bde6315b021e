"""The ring of a run: its five stages, wherever they are, and the loop that drives them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rondel.execution import episodes, fused
from rondel.execution.episodes import Recent
from rondel.execution.fragment import STAGES, Fragment
from rondel.execution.task import Task
from rondel.types import Env, Tree

_SECONDS_PER_CALL = 0.2  # a fused program comes back about this often, to be seen and stopped


class Report(NamedTuple):
    """What a round did."""

    round: int
    steps: int  # so far: transitions, without the steps that only reset
    episodes: int  # so far
    returns: np.ndarray  # of the episodes that ended in this round, by step and lane
    lengths: np.ndarray
    metrics: dict[str, float]  # means over the round's draws; empty while memory warms up


class Limits(NamedTuple):
    """When a run ends: at the first round boundary at or past one of these."""

    steps: int
    until_return: float = float("inf")  # mean return of the last 100 episodes


class Ring:
    """Five stages, each in one of the fragments that `cut` names; by default all in one."""

    def __init__(self, task: Task, cut: Sequence[Collection[str]] = (STAGES,)) -> None:
        self.task = task
        fragments = [Fragment(task, stages) for stages in cut]
        where = {stage: fragment for fragment in fragments for stage in fragment.stages}
        self.policy, self.memory = where["policy"], where["memory"]
        self.gradient, self.update = where["gradient"], where["update"]
        self.fused = len(fragments) == 1 and isinstance(task.env, Env)
        self.round, self.steps = 0, 0
        self.recent = episodes.none_yet()
        self._push = jax.jit(episodes.push)
        self.update.start_update()
        self.weights = self.update.acting()
        items_like = self.policy.start_policy(self.weights, self.policy.start_env())
        self.memory.start_memory(items_like)

    def tree(self) -> dict[str, Tree]:
        """All that the run is, but for memory and the counters `round` and `steps`."""
        tree = {"learner": self.update.learner, "lanes": self.policy.lanes, "recent": self.recent}
        if self.policy.host is None:
            tree |= {"env": self.policy.env, "step": self.policy.step}
        return tree

    def restore(self, tree: dict[str, Tree], memory: Tree, round: int, steps: int) -> None:
        """Go on from what `tree` once gave. Host environments start new episodes."""
        self.round, self.steps = round, steps
        self.recent = Recent(*jax.tree.map(jnp.array, tree["recent"]))
        self.update.learner, self.policy.lanes = tree["learner"], tree["lanes"]
        self.memory.memory = memory
        if self.policy.host is None:
            self.policy.env, self.policy.step = tree["env"], tree["step"]
        else:
            self.policy.start_env(resets=round)
            lanes = self.policy.lanes
            gone = lanes.tail._replace(valid=jnp.zeros_like(lanes.tail.valid))
            self.policy.lanes = lanes._replace(tail=gone)
        self.weights = self.update.acting()

    def close(self) -> None:
        """Free what the environments hold."""
        self.policy.close()


def rounds(ring: Ring, limits: Limits, at_a_time: int | None = None) -> Iterator[Report]:
    """Run until a limit is met, a report per round.

    A fused ring runs several rounds in a call: `at_a_time`, or as many as fit in a moment. The
    numbers are the same.
    """
    pace = 1
    while not met(ring, limits):
        started = time.monotonic()
        n = min(at_a_time or pace, fused.capacity(ring.task))
        reports = advance(ring, limits, n) if ring.fused else [one_round(ring)]
        yield from reports
        spent = max(time.monotonic() - started, 1e-6)
        pace = max(1, min(2 * pace, int(pace * _SECONDS_PER_CALL / spent)))


def met(ring: Ring, limits: Limits) -> bool:
    """Is the run at its end?"""
    solved = float(episodes.mean_return(ring.recent)) >= limits.until_return
    return ring.steps >= limits.steps or solved


def advance(ring: Ring, limits: Limits, rounds: int) -> list[Report]:
    """Up to `rounds` rounds in one program."""
    left = min(limits.steps - ring.steps, 2**31 - 1)
    until = limits.until_return
    ended = int(ring.recent.ended)
    ring.recent, done = ring.policy.advance(ring.recent, ring.round, rounds, left, until)
    reports = []
    for outcome, metrics in done:
        report = count(ring, ended, outcome, metrics)
        ended = report.episodes
        reports.append(report)
    return reports


def one_round(ring: Ring) -> Report:
    """Produce, add, absorb, learn: one request after the other."""
    made = ring.policy.produce(ring.weights, ring.round)
    ended = int(ring.recent.ended)
    ring.recent = ring._push(ring.recent, made.outcome)
    ring.memory.add(made.items, ring.round)
    ring.update.absorb(made.summary)
    metrics = learn(ring, ring.round)
    ring.weights = ring.update.acting()
    return count(ring, ended, made.outcome, metrics)


def learn(ring: Ring, round: int) -> dict[str, Any]:
    """All draws of a round, in one program where memory, gradient and update are together."""
    memory, gradient, update = ring.memory, ring.gradient, ring.update
    if memory is gradient is update:
        return update.learn(round)
    recipe = ring.task.algorithm.memory
    each = []
    for j in range(recipe.draws if round >= recipe.warmup_rounds else 0):
        grads, _, feedback, metrics = gradient.gradient(
            update.learning(), memory.draw(round, j), round, j
        )
        memory.rank(feedback)
        update.update(grads)
        each.append(metrics)
    return jax.tree.map(lambda *xs: sum(xs) / len(xs), *each) if each else {}


def count(ring: Ring, ended: int, outcome: Any, metrics: dict[str, Any]) -> Report:
    """Move the counters past a round and say what it did."""
    returns, lengths = episodes.finished(outcome)
    ring.steps += int(np.sum(outcome.valid))
    learned = ring.round >= ring.task.algorithm.memory.warmup_rounds
    report = Report(
        ring.round,
        ring.steps,
        ended + len(returns),
        returns,
        lengths,
        {name: float(value) for name, value in metrics.items()} if learned else {},
    )
    ring.round += 1
    return report
