"""The requests of a round: produce, add, learn, report.

Everything that flows between copies is dispatched here. What stays in a copy is not sent.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Any, NamedTuple

import jax
import numpy as np

from rondel.execution.backends.protocol import Copy, Promise
from rondel.execution.hostenv.partition import route
from rondel.execution.loop.ring import Ring, Rollout
from rondel.execution.stages import episode_stats
from rondel.execution.stages.episode_stats import RecentEpisodes
from rondel.execution.stages.round import Round
from rondel.execution.stages.task import concat_lanes


class Report(NamedTuple):
    """The results of a round."""

    round: int
    steps: int  # so far: transitions, without the steps that only reset
    episodes: int  # so far
    returns: np.ndarray  # of the episodes that ended in this round, by step and lane
    lengths: np.ndarray
    metrics: dict[str, float]  # means over the round's draws; empty while memory warms up
    return_mean: float | None  # of the last 100 episodes; None before the first
    length_mean: float | None


def dispatch_rollout(ring: Ring, round: int) -> Rollout:
    """Request a round's experience from every policy copy."""
    return gather_parts([dispatch_rollout_part(copy, ring.weights, round) for copy in ring.policy])


def dispatch_rollout_part(copy: Copy, weights: Promise, round: int) -> Rollout:
    """Request one policy copy's part of a round."""
    return Rollout(*([promise] for promise in copy.produce(weights, round)))


def gather_parts(parts: list[Rollout]) -> Rollout:
    """Join the parts of a round, in copy order."""
    return Rollout(*(list(chain(*each)) for each in zip(*parts, strict=True)))


def dispatch_add(ring: Ring, made: Rollout, round: int) -> None:
    """Send a round's items to memory."""
    routed = _routed(made.items, ring.policy, ring.memory)
    for copy, items in zip(ring.memory, routed, strict=True):
        copy.add(round, *items)


def dispatch_learning(ring: Ring, made: Rollout, round: int) -> list[Promise]:
    """Absorb, K times draw, label, gradient and update, then new weights -> promised metrics."""
    update = ring.update
    for copy in update:
        copy.absorb(*made.summary)
    metrics = []
    if ring.lowering.learns_in_one_program:
        metrics.append(update[0].learn(round))
    elif round >= ring.task.algorithm.memory.warmup_rounds:
        if (known := label_variables(ring)) is not None:
            for copy in ring.label:
                copy.set_label_variables(known)
        for j in range(ring.task.algorithm.memory.draws):
            metrics.append(dispatch_update(ring, round, j))
    ring.weights = update[0].acting()
    return metrics


def label_variables(ring: Ring) -> Promise:
    """What labels need of the learner; None if they are made there, or not at all."""
    apart = ring.label is not ring.update and ring.task.algorithm.label is not None
    return ring.update[0].learning() if apart else None


def dispatch_update(ring: Ring, round: int, j: int) -> Promise:
    """One draw, label, gradient and update -> promised metrics."""
    memory, gradient, update = ring.memory, ring.gradient, ring.update
    variables = None if gradient is update else update[0].learning()
    made = [
        copy.gradient(round, j, variables, *batch)
        for copy, batch in zip(gradient, dispatch_draw(ring, round, j), strict=True)
    ]
    feedback, contributions = map(list, zip(*made, strict=True))
    if memory is not gradient:
        for copy, back in zip(memory, _routed(feedback, gradient, memory), strict=True):
            copy.rank(*back)
    alone = gradient is update and len(update) == 1
    promised = [copy.update(*([] if alone else contributions)) for copy in update]
    return promised[0]


def dispatch_draw(ring: Ring, round: int, j: int) -> list[list[Any]]:
    """Draw, and label on the way -> the arguments with which each gradient copy gets its share."""
    memory, label = ring.memory, ring.label
    made = [] if memory is label else [copy.draw(round, j) for copy in memory]
    if label is ring.gradient:
        return _routed(made, memory, label)
    made = [
        copy.label(round, j, *batch)
        for copy, batch in zip(label, _routed(made, memory, label), strict=True)
    ]
    return _routed(made, label, ring.gradient)


def _routed(made: list[Promise], makers: list[Copy], takers: list[Copy]) -> list[list[Any]]:
    """The arguments that give each taker its share; none if the makers are the takers."""
    if makers is takers:
        return [[] for _ in takers]
    return [[share, *parts] for share, parts in route(made, len(takers))]


def collect_report(ring: Ring, made: Rollout, metrics: list[Promise]) -> Report:
    """Wait for a round's results and count them."""
    outcome = concat_lanes(ring.backend.get(made.outcome))
    each = [jax.tree.map(np.asarray, one) for one in ring.backend.get(metrics)]
    means = jax.tree.map(lambda *xs: sum(xs) / len(xs), *each) if each else {}
    ended = int(ring.recent.ended)
    ring.recent = ring._push(ring.recent, outcome)
    return make_report(ring, ended, outcome, means, ring._means(ring.recent))


def collect_fused_reports(ring: Ring, recent: RecentEpisodes, done: list[Round]) -> list[Report]:
    """Count the rounds that one program ran."""
    ended, reports = int(ring.recent.ended), list[Report]()
    ring.recent = recent
    for outcome, metrics, means in done:
        reports.append(make_report(ring, ended, outcome, metrics, means))
        ended = reports[-1].episodes
    ring.weights = ring.update[0].acting()
    return reports


def make_report(
    ring: Ring, ended: int, outcome: Any, metrics: dict[str, Any], means: tuple[Any, Any]
) -> Report:
    """Move the counters past a round and report it."""
    returns, lengths = episode_stats.finished(outcome)
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
