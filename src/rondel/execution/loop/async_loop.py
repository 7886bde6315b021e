"""The loop of a free run: learn from what arrives first, within a bound on the lag.

A rollout is here one policy copy's part of a round. Two pure functions in `plan.lag` decide what
may start and what may be learned from. Numbers depend on which copy is faster; no step is learned
from twice, or lost while the run lasts.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from rondel.execution.backends.protocol import Promise
from rondel.execution.loop.ring import Ring, Rollout
from rondel.execution.loop.rounds import (
    Report,
    collect_report,
    dispatch_add,
    dispatch_learning,
    dispatch_rollout_part,
    gather_parts,
    label_variables,
)
from rondel.plan.lag import may_learn, may_learn_beside, may_start

_DEPTH = 2  # rollouts of a copy: one that runs, and one that begins when it ends


class InFlightRollout(NamedTuple):
    """A copy's part of a round."""

    copy: int
    version: int  # of the weights that it acts with
    made: Rollout


class LearnerStep(NamedTuple):
    """Rollouts that the learner is busy with."""

    rollouts: list[InFlightRollout]
    steps: Generator[Promise, None, list[Promise]]  # what to wait for, then the metrics
    waits: Promise


class AsyncLoop:
    """The state of a free run between its rounds, and the loop."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        copies = len(ring.policy)
        self.own_rounds = ring.lowering.own_rounds
        self.parts = 1 if self.own_rounds else copies
        self.max_lag = copies * (ring.plan.lag + 1) - 1 if self.own_rounds else ring.plan.lag
        self.acting: Sequence[int] = range(copies)  # copies that may start a rollout
        self.version, self.weights = 0, ring.weights
        # rounds that each copy has begun, which its keys depend on; in a resumed run more than any
        # copy can have begun before
        self.rounds_begun = [
            copies * (ring.round + ring.plan.lag + 1) if ring.round else 0
        ] * copies
        self.rounds_learned = [ring.round] * copies
        self.in_flight: list[InFlightRollout] = []
        self.arrived: list[InFlightRollout] = []
        self.learning: list[LearnerStep] = []
        self.late = 0  # rollouts so far that a newer one has overtaken
        self.newest = 0  # version that was learned from

    def next_report(self) -> Report:
        """Run until something has been learned."""
        while True:
            self._choose_actors()
            while self._start_rollout() or self._start_learning():
                pass
            waits = [f.made.outcome[0] for f in self.in_flight] + [x.waits for x in self.learning]
            ready = set(self.ring.backend.wait(waits))
            flying, learning = self.in_flight, self.learning
            moved = [x for i, x in enumerate(learning, len(flying)) if i in ready]
            self.arrived += [f for i, f in enumerate(flying) if i in ready]
            self.in_flight = [f for i, f in enumerate(flying) if i not in ready]
            for step in moved:
                self.learning = [x for x in self.learning if x is not step]
                if report := self._continue_learning(step):
                    return report

    def _choose_actors(self) -> None:
        """Choose the copies that act, if the plan has a range of them."""
        if self.ring.elastic:
            busy = {rollout.copy for rollout in self._outstanding()}
            self.acting = self.ring.elastic.rescale(lambda i: i not in busy)

    def _outstanding(self) -> list[InFlightRollout]:
        return [*self.in_flight, *self.arrived, *(f for x in self.learning for f in x.rollouts)]

    def _start_rollout(self) -> bool:
        """Start a rollout, if one may start, on the copy that has least to do."""
        outstanding = self._outstanding()
        if not may_start(len(outstanding), self.parts, self.max_lag):
            return False
        # a deep queue would make a slow copy's rollouts older than necessary
        counted, depth = (outstanding, 1) if self.own_rounds else (self.in_flight, _DEPTH)
        busy = {copy: sum(f.copy == copy for f in counted) for copy in self.acting}
        copy = min(busy, key=lambda copy: busy[copy], default=None)
        if copy is None or busy[copy] >= depth:
            return False
        made = dispatch_rollout_part(self.ring.policy[copy], self.weights, self.rounds_begun[copy])
        self.rounds_begun[copy] += 1
        self.in_flight.append(InFlightRollout(copy, self.version, made))
        return True

    def _start_learning(self) -> bool:
        """Send the learner the n oldest rollouts that have arrived, if it may learn from them."""
        versions = [f.version for f in self.arrived], [f.version for f in self.in_flight]
        busy = [f.version for x in self.learning for f in x.rollouts]
        if self.own_rounds:
            may = may_learn_beside(self.version, *versions, busy, self.max_lag)
        else:
            may = not busy and may_learn(self.version, *versions, self.parts, self.max_lag)
        if not may:
            return False
        self.arrived.sort(key=lambda f: f.version)  # in the order of arrival among equals
        taken, self.arrived = self.arrived[: self.parts], self.arrived[self.parts :]
        taken.sort(key=lambda f: f.copy)  # a lane keeps its place in memory: its rounds follow on
        steps = self._learn_own(taken[0]) if self.own_rounds else self._learn(taken)
        self.learning.append(LearnerStep(taken, steps, next(steps)))
        return True

    def _learn(self, taken: list[InFlightRollout]) -> Generator[Promise, None, list[Promise]]:
        """Learn with the whole learner: dispatch everything, then wait for it."""
        ring, made = self.ring, gather_parts([f.made for f in taken])
        dispatch_add(ring, made, ring.round)
        metrics = dispatch_learning(ring, made, ring.round)
        yield ring.weights
        return metrics

    def _learn_own(self, rollout: InFlightRollout) -> Generator[Promise, None, list[Promise]]:
        """Learn from one copy's own gradients; `update` takes each on arrival."""
        ring, copy = self.ring, self.ring.gradient[rollout.copy]
        round, memory = self.rounds_learned[rollout.copy], self.ring.task.algorithm.memory
        self.rounds_learned[rollout.copy] += 1
        copy.add(round)
        ring.update[0].absorb(*rollout.made.summary)
        metrics, known = [], label_variables(ring)
        for j in range(memory.draws if round >= memory.warmup_rounds else 0):
            if known is not None:  # each time, since its state may be kept in between
                copy.set_label_variables(known)
            _, contribution = copy.gradient(round, j, ring.update[0].learning())
            yield contribution
            metrics.append(ring.update[0].update(contribution))
        ring.weights = ring.update[0].acting()
        yield ring.weights
        return metrics

    def _continue_learning(self, step: LearnerStep) -> Report | None:
        """Take the next step of learning; after the last, report the round."""
        try:
            self.learning.append(step._replace(waits=next(step.steps)))
            return None
        except StopIteration as end:
            metrics: list[Any] = end.value
        rounds = len(self.rounds_begun) if self.own_rounds else 1  # versions to a round
        lags = [(self.version - f.version) / rounds for f in step.rollouts]
        versions = [f.version for f in step.rollouts]
        self.late += sum(version < self.newest for version in versions)
        self.newest = max(self.newest, *versions)  # only now: who is learned from together is even
        self.version += 1
        self.weights = self.ring.weights
        report = collect_report(self.ring, gather_parts([f.made for f in step.rollouts]), metrics)
        report.metrics.update({"policy/lag": sum(lags) / len(lags), "policy/lag_max": max(lags)})
        report.metrics["policy/late"] = float(self.late)
        if self.ring.elastic:
            report.metrics["policy/copies"] = float(len(self.acting))
        return report
