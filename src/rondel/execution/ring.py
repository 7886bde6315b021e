"""The ring of a run: its five stages, wherever they are, and the loop that drives them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rondel.errors import RondelError
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
    return_mean: float | None  # of the last 100 episodes; None before the first
    length_mean: float | None


class Limits(NamedTuple):
    """When a run ends: at the first round boundary at or past one of these."""

    steps: int
    until_return: float = float("inf")  # mean return of the last 100 episodes


class NotFinite(RondelError):
    """A loss or another metric became infinite or no number at all."""


class Ring:
    """Five stages, each in one of the fragments that `cut` names; by default all in one."""

    def __init__(self, task: Task, cut: Sequence[Collection[str]] = (STAGES,)) -> None:
        self.task = task
        fragments = [Fragment(task, stages) for stages in cut]
        where = {stage: fragment for fragment in fragments for stage in fragment.stages}
        if where["env"] is not where["policy"]:
            raise RondelError("A cut between env and policy can't be run yet; other cuts can.")
        self.policy, self.memory = where["policy"], where["memory"]
        self.gradient, self.update = where["gradient"], where["update"]
        self.fused = len(fragments) == 1 and isinstance(task.env, Env)
        self.round, self.steps = 0, 0
        self.recent = episodes.none_yet()
        self._push = jax.jit(episodes.push)
        self._means = jax.jit(episodes.means)
        self.update.start_update()
        self.weights = self.update.acting()
        try:
            items_like = self.policy.start_policy(self.weights, self.policy.start_env())
            self.memory.start_memory(items_like)
        except BaseException:
            self.close()
            raise

    def tree(self) -> dict[str, Tree]:
        """All that the run is, but for memory and the counters `round` and `steps`."""
        tree = {"learner": self.update.learner, "lanes": self.policy.lanes, "recent": self.recent}
        if self.policy.host is None:
            tree |= {"env": self.policy.env, "step": self.policy.step}
        return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, tree)

    def restore(self, tree: dict[str, Tree], memory: Tree, round: int, steps: int) -> None:
        """Go on from what `tree` once gave. Host environments start new episodes."""
        self.round, self.steps = round, steps
        self.recent = Recent(*tree["recent"])
        self.update.learner = _with_keys(self.update.learner, tree["learner"])
        self.policy.lanes = _with_keys(self.policy.lanes, tree["lanes"])
        self.memory.memory = memory
        if self.policy.host is None:
            self.policy.env = _with_keys(self.policy.env, tree["env"])
            self.policy.step = _with_keys(self.policy.step, tree["step"])
        else:
            self.policy.start_env(again=round)
            lanes = self.policy.lanes
            gone = lanes.tail._replace(valid=jnp.zeros_like(lanes.tail.valid))
            self.policy.lanes = lanes._replace(tail=gone)
        self.weights = self.update.acting()

    def close(self) -> None:
        """Free what the environments hold."""
        self.policy.close()


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _with_keys(like: Tree, tree: Tree) -> Tree:
    """A tree that was read as plain numbers, with keys where `like` has keys."""

    def one(like: Any, x: Any) -> Any:
        is_key = _is_key(like)
        return jax.random.wrap_key_data(x, impl=jax.random.key_impl(like)) if is_key else x

    return jax.tree.map(one, like, tree)


def rounds(
    ring: Ring, limits: Limits, at_a_time: int | None = None, advice: Callable[[], str] = str
) -> Iterator[Report]:
    """Run until a limit is met, a report per round.

    A fused ring runs several rounds in a call: `at_a_time`, or as many as fit in a moment. The
    numbers are the same. What `advice` says is added to the error if a loss is no number.
    """
    n = at_a_time or 1
    while not met(ring, limits):
        started = time.monotonic()
        reports = advance(ring, limits, n) if ring.fused else [one_round(ring)]
        spent = time.monotonic() - started
        # before any of them is seen: the ring is past them all, and must not be saved then
        stop_if_not_finite(reports, advice)
        yield from reports
        n = at_a_time or next_pace(n, spent, fused.capacity(ring.task))


def next_pace(rounds: int, seconds: float, most: int) -> int:
    """How many rounds the next call should run, after one of `rounds` took `seconds`."""
    fits = rounds * _SECONDS_PER_CALL / max(seconds, 1e-6)
    return int(max(1, min(fits, 2 * rounds, most)))


def stop_if_not_finite(reports: list[Report], advice: Callable[[], str]) -> None:
    """Raise `NotFinite` for the first report with a metric that is no number."""
    for report in reports:
        terms = [f"{k} is {v}" for k, v in report.metrics.items() if not math.isfinite(v)]
        if terms:
            raise NotFinite(
                f"Training stopped in round {report.round}, after {report.steps} steps, because "
                f"{', '.join(terms)}. {advice()}".strip()
            )


def met(ring: Ring, limits: Limits) -> bool:
    """Is the run at its end?"""
    if ring.steps >= limits.steps or math.isinf(limits.until_return):
        return ring.steps >= limits.steps
    # in 32 bits, as a fused program compares them
    return bool(episodes.mean_return(ring.recent) >= np.float32(limits.until_return))


def advance(ring: Ring, limits: Limits, rounds: int) -> list[Report]:
    """Up to `rounds` rounds in one program."""
    left = min(limits.steps - ring.steps, 2**31 - 1)
    until = limits.until_return
    ended = int(ring.recent.ended)
    ring.recent, done = ring.policy.advance(ring.recent, ring.round, rounds, left, until)
    reports = []
    for outcome, metrics, means in done:
        report = count(ring, ended, outcome, metrics, means)
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
    return count(ring, ended, made.outcome, metrics, ring._means(ring.recent))


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


def count(
    ring: Ring, ended: int, outcome: Any, metrics: dict[str, Any], means: tuple[Any, Any]
) -> Report:
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
        *(None if math.isnan(mean) else float(mean) for mean in means),
    )
    ring.round += 1
    return report
