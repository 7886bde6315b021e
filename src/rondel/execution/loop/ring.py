"""The ring of a run: its stages in the copies of a plan, its state and its timings."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, NamedTuple, cast

import jax

from rondel.errors import RondelError
from rondel.execution.backends.inline import Inline
from rondel.execution.backends.lowering import Kind, Lowering, lower
from rondel.execution.backends.protocol import Backend, Copy, ElasticBackend, Restarts
from rondel.execution.hostenv.partition import LaneShare
from rondel.execution.loop.elastic import ElasticWorkers
from rondel.execution.stages import episode_stats, shapes
from rondel.execution.stages.episode_stats import RecentEpisodes
from rondel.execution.stages.task import Task, concat_lanes, keeps_state, take_share, without_keys
from rondel.execution.telemetry.timing import ROUNDS, Meter, TimingReport, TimingSummary
from rondel.plan.parser import parse
from rondel.plan.pieces import ORDER
from rondel.plan.plan import Plan
from rondel.types import Tree

UNCUT = parse("all")
_WARM = 2  # rounds until all programs of a cut ring have run: the first may do some things once


class Rollout(NamedTuple):
    """A round's experience, or one policy copy's part of it: promises in copy order."""

    items: Any
    summary: Any
    outcome: Any


class TimingBaseline(NamedTuple):
    """Where a profile begins: every program has run once, so no later round compiles."""

    round: int
    told: dict[str, TimingReport]  # by meter
    restarts: Restarts


class Ring:
    """All stages, each in the copies of one of the plan's pieces."""

    def __init__(
        self,
        task: Task,
        plan: Plan = UNCUT,
        backend: Backend | None = None,
        lowering: Lowering | None = None,
    ) -> None:
        """Without a backend the copies are in this thread, and with one elsewhere, by default."""
        self.task, self.plan = task, plan
        self.lowering = lowering or lower(task, plan, in_driver=backend is None)
        self.backend = backend or Inline()
        self.meter: Meter = getattr(self.backend, "meter", None) or Meter()  # the driver's
        self.base: TimingBaseline | None = None
        self._learned = 0  # rounds, or calls of several, that learned something in this process
        self.round, self.steps = 0, 0
        self.recent = episode_stats.no_episodes()
        self.pending: deque[Rollout] = deque()  # rounds in flight, which nothing was learned from
        self.free: Any = None  # the `AsyncLoop` of a free run, which has its own
        self._push = jax.jit(episode_stats.push)
        self._means = jax.jit(episode_stats.means)
        try:
            self.copies = copies = self.backend.launch(task, self.lowering)  # of each piece
            self.env, self.policy, self.memory, self.label, self.gradient, self.update = (
                copies[plan.pieces.index(plan.piece_of(stage))] for stage in ORDER
            )
            least = plan.piece_of("policy").least
            self.elastic: ElasticWorkers | None = None
            if least:
                ranges = cast(ElasticBackend, self.backend).elastic
                self.elastic = ElasticWorkers(task, self.policy, least, ranges)
            self.backend.get([copy.begin() for copy in self._running().values()])
        except BaseException:
            self.close()
            raise
        self.weights = self.update[0].acting()

    @property
    def fused(self) -> bool:
        """Does one program run the next rounds? Rounds in flight are learned from before that."""
        return self.lowering.one_program and not self.pending

    def _running(self) -> dict[int, Copy]:
        """The policy's copies that run, by number: all, unless the plan has a range of copies."""
        return self.elastic.here() if self.elastic else dict(enumerate(self.policy))

    def learner(self) -> Tree:
        """The learner's state."""
        return self.backend.get([self.update[0].snapshot("learner")])[0]["learner"]

    def acting(self) -> Tree:
        """The newest weights."""
        return self.backend.get([self.weights])[0]

    def tree(self) -> dict[str, Tree]:
        """The state of the run, except memory and the counters `round` and `steps`.

        It does not depend on the plan: copies of env and policy are joined lane by lane.
        """
        kept = keeps_state(self.task.env)
        ask = ["lanes", *(("step", "env") if kept else ())]
        if not self.plan.free:  # a free run loses its rounds in flight
            ask.append("made")
        here = self._running()
        got = self.backend.get([copy.snapshot(*ask) for copy in here.values()])
        states = dict(zip(here, got, strict=True))
        parts = [
            states[i] if i in states or not self.elastic else self.elastic.state_of(i)
            for i in range(len(self.policy))
        ]
        tree = {"learner": self.learner(), "recent": self.recent}
        tree |= {
            name: concat_lanes([part[name] for part in parts]) for name in ask if name in parts[0]
        }
        return tree | {"pending": self._in_flight(tree.pop("made", ()))}

    def _in_flight(self, kept: tuple[Tree, ...]) -> list[Rollout]:
        """The rounds in flight as arrays, lane by lane; `kept` are items in the policy copies."""
        flying = []
        for i, made in enumerate(self.pending):
            items, summary, outcome = (concat_lanes(self.backend.get(part)) for part in made)
            flying.append(Rollout(kept[i] if kept else items, summary, outcome))
        return without_keys(flying)

    def tree_like(self, in_flight: int) -> dict[str, Tree]:
        """The shapes and types of `tree` with this number of rounds in flight."""
        items, summary = shapes.produced_like(self.task, self.task.lanes)
        made = Rollout(items, summary, shapes.outcome_like(self.task))
        return self.tree() | {"pending": jax.eval_shape(without_keys, [made] * in_flight)}

    def restore(self, tree: dict[str, Tree], memory: Tree, round: int, steps: int) -> None:
        """Continue from `tree` and `stored`. Host environments start new episodes."""
        if self.plan.free and tree["pending"]:
            raise RondelError(
                f"This checkpoint has {len(tree['pending'])} rounds in flight, which a free run "
                "would lose. Leave out --free."
            )
        if self.lowering.kind is Kind.DATA_PARALLEL and tree["pending"]:
            raise RondelError(
                "This checkpoint has rounds in flight, which one program on several devices can't "
                "learn from. Use --on processes."
            )
        self.round, self.steps, self.free = round, steps, None
        self.recent = RecentEpisodes(*tree["recent"])
        kept = keeps_state(self.task.env)
        home = self.memory is self.policy  # then items in flight stay in the policy copies
        flying = [Rollout(*made) for made in tree["pending"]]
        asked = [copy.restore({"learner": tree["learner"]}) for copy in self.update]
        shards = (memory,) if len(self.memory) == 1 else memory
        for copy, part in zip(self.memory, shards, strict=True):
            asked.append(copy.restore({"memory": part}))
        names = ("lanes", "step", "env") if kept else ("lanes",)
        lanes = {name: tree[name] for name in names}
        made = tuple(made.items for made in flying) if home else ()
        here = self._running()
        for i, copy in enumerate(self.policy):
            mine = take_share(LaneShare(i, len(self.policy)), (lanes | {"made": made},))
            if self.elastic and i not in here:
                self.elastic.restore(i, mine)
                continue
            asked.append(copy.restore(mine))
            if not kept:
                asked.append(copy.begin_again(round))
        self.backend.get(asked)
        self.pending = deque(self._parts(made, home) for made in flying)
        self.weights = self.update[0].acting()
        self.backend.after_round(now=True)

    def _parts(self, made: Rollout, home: bool) -> Rollout:
        """A round in flight, split as the copies of this plan would have made it."""
        n = len(self.policy)
        each = [[take_share(LaneShare(i, n), (part,)) for i in range(n)] for part in made]
        return Rollout([None] * n if home else each[0], *each[1:])

    def stored(self) -> Tree:
        """The state of memory; a tuple if there are several shards."""
        parts = self.backend.get([copy.snapshot("memory") for copy in self.memory])
        shards = tuple(part["memory"] for part in parts)
        return shards[0] if len(shards) == 1 else shards

    def latest_timings(self) -> list[list[TimingSummary]]:
        """The timing summaries last received from the copies of each piece; sends no request.

        Environments that a policy drives report to the policy, which passes it on with its replies.
        """
        here = list(self._running().values())
        driven: dict[int, TimingSummary] = {}
        for copy in here:
            if seen := copy.latest_timings():
                for env, one in seen.driven.items():
                    if env not in driven or driven[env].seconds < one.seconds:
                        driven[env] = one
        latest = []
        for piece in self.copies:
            every = here if piece is self.policy else piece
            received = {
                i: seen.mine for i, copy in enumerate(every) if (seen := copy.latest_timings())
            }
            received |= driven if piece is self.env and piece is not self.policy else {}
            latest.append([received[i] for i in sorted(received)])
        return latest

    def take_baseline(self) -> None:
        """After a round: begin the profile once every program has run.

        Asking all copies waits for them, so it is done once.
        """
        if self.base is None and self.round > self.task.algorithm.memory.warmup_rounds:
            self._learned += 1
            if self._learned >= (1 if self.fused else _WARM):
                everyone = [told for piece in self.timing_reports() for _, told in piece]
                driver = self.meter.report()
                spent = {told.who: told for told in (*everyone, driver)}
                self.base = TimingBaseline(self.round, spent, self.backend.restarts())

    def timing_reports(self) -> list[list[tuple[str, TimingReport]]]:
        """The timings of each piece's copies with their names; one report for a shared thread."""
        here = list(self._running().values())
        every = [here if piece is self.policy else piece for piece in self.copies]
        told = [[(copy.name, self._clocked(copy)) for copy in piece] for piece in every]
        if not self.lowering.in_driver:  # then none of their marks was the driver's
            self.meter.mark("driver", ROUNDS)
        return told

    def _clocked(self, copy: Copy) -> TimingReport:
        """A copy's timings, by this machine's clock as far as the two can be compared."""
        asked = time.time()
        told: TimingReport = self.backend.get([copy.timing_report()])[0]
        answered = time.time()
        ahead = told.clock - (asked + answered) / 2
        return told if abs(ahead) <= (answered - asked) / 2 else told.earlier(ahead)

    def close(self) -> None:
        """End all copies and free what the environments hold."""
        self.backend.close()
