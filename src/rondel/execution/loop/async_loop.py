"""The loop of a free run: learn from what arrives first, within a bound on the lag.

A flight is one policy copy's part of a round, on its way. What may start and what may be learned
from is decided by two pure functions, `plan.lag`; here they are obeyed. Numbers depend on who is
quicker; no step is learned from twice or lost while it runs.
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

_DEPTH = 2  # flights of a copy: one under way, and one that begins when it lands


class InFlightRollout(NamedTuple):
    """A copy's part of a round."""

    copy: int
    version: int  # of the weights that it acts with
    made: Rollout


class LearnerStep(NamedTuple):
    """Flights that the learner is busy with."""

    flights: list[InFlightRollout]
    steps: Generator[Promise, None, list[Promise]]  # what to wait for, then the metrics
    waits: Promise


class AsyncLoop:
    """What a free run knows between its rounds."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        copies = len(ring.policy)
        self.own = ring.lowering.own_rounds
        self.n = 1 if self.own else copies
        self.k = copies * (ring.plan.lag + 1) - 1 if self.own else ring.plan.lag
        self.acting: Sequence[int] = range(copies)  # those that may start a flight
        self.version, self.weights = 0, ring.weights
        # rounds that each copy has begun, by which its keys are made; of a run that goes on, more
        # than any copy can have begun before
        self.begun = [copies * (ring.round + ring.plan.lag + 1) if ring.round else 0] * copies
        self.learned = [ring.round] * copies
        self.flying: list[InFlightRollout] = []
        self.queued: list[InFlightRollout] = []
        self.lessons: list[LearnerStep] = []
        self.late = 0  # flights that a newer one has overtaken, so far
        self.newest = 0  # version that was learned from

    def next_report(self) -> Report:
        """Go on until something has been learned."""
        while True:
            self._muster()
            while self._start() or self._teach():
                pass
            waits = [f.made.outcome[0] for f in self.flying] + [x.waits for x in self.lessons]
            ready = set(self.ring.backend.wait(waits))
            flights, lessons = self.flying, self.lessons
            moved = [x for i, x in enumerate(lessons, len(flights)) if i in ready]
            self.queued += [f for i, f in enumerate(flights) if i in ready]
            self.flying = [f for i, f in enumerate(flights) if i not in ready]
            for lesson in moved:
                self.lessons = [x for x in self.lessons if x is not lesson]
                if report := self._go_on(lesson):
                    return report

    def _muster(self) -> None:
        """Who acts, where the plan has a range of copies."""
        if self.ring.crew:
            busy = {flight.copy for flight in self._outstanding()}
            self.acting = self.ring.crew.muster(lambda i: i not in busy)

    def _outstanding(self) -> list[InFlightRollout]:
        return [*self.flying, *self.queued, *(f for x in self.lessons for f in x.flights)]

    def _start(self) -> bool:
        """Start a flight, if one may: of the copy that has least to do."""
        outstanding = self._outstanding()
        if not may_start(len(outstanding), self.n, self.k):
            return False
        # a deep queue would make a slow copy's flights older than they need be
        counted, depth = (outstanding, 1) if self.own else (self.flying, _DEPTH)
        busy = {copy: sum(f.copy == copy for f in counted) for copy in self.acting}
        copy = min(busy, key=lambda copy: busy[copy], default=None)
        if copy is None or busy[copy] >= depth:
            return False
        made = dispatch_rollout_part(self.ring.policy[copy], self.weights, self.begun[copy])
        self.begun[copy] += 1
        self.flying.append(InFlightRollout(copy, self.version, made))
        return True

    def _teach(self) -> bool:
        """Give the learner the n oldest flights that wait, if it may have them."""
        versions = [f.version for f in self.queued], [f.version for f in self.flying]
        busy = [f.version for x in self.lessons for f in x.flights]
        if self.own:
            may = may_learn_beside(self.version, *versions, busy, self.k)
        else:
            may = not busy and may_learn(self.version, *versions, self.n, self.k)
        if not may:
            return False
        self.queued.sort(key=lambda f: f.version)  # in the order of arrival among equals
        taken, self.queued = self.queued[: self.n], self.queued[self.n :]
        taken.sort(key=lambda f: f.copy)  # a lane keeps its place in memory: its rounds follow on
        steps = self._learn_own(taken[0]) if self.own else self._learn(taken)
        self.lessons.append(LearnerStep(taken, steps, next(steps)))
        return True

    def _learn(self, taken: list[InFlightRollout]) -> Generator[Promise, None, list[Promise]]:
        """The whole learner at once: it is asked for everything, then waited for."""
        ring, made = self.ring, gather_parts([f.made for f in taken])
        dispatch_add(ring, made, ring.round)
        metrics = dispatch_learning(ring, made, ring.round)
        yield ring.weights
        return metrics

    def _learn_own(self, flight: InFlightRollout) -> Generator[Promise, None, list[Promise]]:
        """One copy's gradients, each of which update takes when it comes."""
        ring, copy = self.ring, self.ring.gradient[flight.copy]
        round, recipe = self.learned[flight.copy], self.ring.task.algorithm.memory
        self.learned[flight.copy] += 1
        copy.add(round)
        ring.update[0].absorb(*flight.made.summary)
        metrics, known = [], label_variables(ring)
        for j in range(recipe.draws if round >= recipe.warmup_rounds else 0):
            if known is not None:  # each time, since its state may be kept in between
                copy.know(known)
            _, contribution = copy.gradient(round, j, ring.update[0].learning())
            yield contribution
            metrics.append(ring.update[0].update(contribution))
        ring.weights = ring.update[0].acting()
        yield ring.weights
        return metrics

    def _go_on(self, lesson: LearnerStep) -> Report | None:
        """The next step of a lesson; after its last, the report."""
        try:
            self.lessons.append(lesson._replace(waits=next(lesson.steps)))
            return None
        except StopIteration as end:
            metrics: list[Any] = end.value
        rounds = len(self.begun) if self.own else 1  # versions to a round
        lags = [(self.version - f.version) / rounds for f in lesson.flights]
        versions = [f.version for f in lesson.flights]
        self.late += sum(version < self.newest for version in versions)
        self.newest = max(self.newest, *versions)  # only now: who is learned from together is even
        self.version += 1
        self.weights = self.ring.weights
        report = collect_report(self.ring, gather_parts([f.made for f in lesson.flights]), metrics)
        report.metrics.update({"policy/lag": sum(lags) / len(lags), "policy/lag_max": max(lags)})
        report.metrics["policy/late"] = float(self.late)
        if self.ring.crew:
            report.metrics["policy/copies"] = float(len(self.acting))
        return report
