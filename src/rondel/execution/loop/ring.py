"""The ring of a run: its stages, wherever they are, and all that it is."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, NamedTuple, cast

import jax

from rondel.errors import RondelError
from rondel.execution.backends.inline import Inline
from rondel.execution.backends.lowering import Kind, Lowering, lower
from rondel.execution.backends.protocol import Backend, Copy, Restarts
from rondel.execution.hostenv.partition import LaneShare
from rondel.execution.loop.elastic import ElasticBackend, ElasticWorkers
from rondel.execution.stages import episode_stats, initial
from rondel.execution.stages.episode_stats import RecentEpisodes
from rondel.execution.stages.task import Task, keeps_state, without_keys
from rondel.execution.telemetry.timing import ROUNDS, Meter, TimingReport, TimingSummary
from rondel.execution.workers.lane_trees import concat_lanes, take_share
from rondel.plan.parser import parse
from rondel.plan.pieces import ORDER
from rondel.plan.plan import Plan
from rondel.types import Tree

UNCUT = parse("all")
_WARM = 2  # rounds until all programs of a cut ring have run: the first may do some things once


class Rollout(NamedTuple):
    """A round's experience on its way, or one policy copy's part of it: promises in copy order."""

    items: Any
    summary: Any
    outcome: Any


class TimingBaseline(NamedTuple):
    """Where a profile begins: every program has run, so that nobody waits for one to compile."""

    round: int
    told: dict[str, TimingReport]  # by who says it
    restarts: Restarts


class Ring:
    """All stages, each in the copies of one of the plan's pieces."""

    def __init__(self, task: Task, plan: Plan = UNCUT, backend: Backend | None = None) -> None:
        self.task, self.plan = task, plan
        self.backend = backend or Inline()
        self.meter: Meter = getattr(self.backend, "meter", None) or Meter()  # the driver's
        self.base: TimingBaseline | None = None
        self._warm = 0  # rounds here in which something was learned, or calls of several
        self.round, self.steps = 0, 0
        self.recent = episode_stats.no_episodes()
        self.pending: deque[Rollout] = deque()  # rounds that were started and not learned from yet
        self.free: Any = None  # what a free run knows of those, instead
        self._push = jax.jit(episode_stats.push)
        self._means = jax.jit(episode_stats.means)
        try:
            self.copies = copies = self.backend.launch(task, plan)  # of each piece
            made: Lowering | None = getattr(self.backend, "lowering", None)  # in this thread
            self.lowering = made or lower(task, plan, in_driver=False)
            self.env, self.policy, self.memory, self.label, self.gradient, self.update = (
                copies[plan.pieces.index(plan.piece_of(stage))] for stage in ORDER
            )
            least = plan.piece_of("policy").least
            self.crew = (
                ElasticWorkers(
                    task,
                    self.policy,
                    least,
                    cast(ElasticBackend, getattr(self.backend, "elastic", self.backend)),
                )
                if least
                else None
            )
            self.backend.get([copy.begin() for copy in self._present().values()])
        except BaseException:
            self.close()
            raise
        self.weights = self.update[0].acting()

    @property
    def fused(self) -> bool:
        """Does one program run the next rounds? Rounds in flight are learned from before that."""
        return self.lowering.one_program and not self.pending

    def _present(self) -> dict[int, Copy]:
        """The policy's copies that run, by number: all of them, where the plan has no range."""
        return self.crew.here() if self.crew else dict(enumerate(self.policy))

    def learner(self) -> Tree:
        """The learner's state."""
        return self.backend.get([self.update[0].snapshot("learner")])[0]["learner"]

    def acting(self) -> Tree:
        """What the newest policy acts with."""
        return self.backend.get([self.weights])[0]

    def tree(self) -> dict[str, Tree]:
        """All that the run is, but for memory and the counters `round` and `steps`.

        It is the same whatever the plan: copies of env and policy are put together, lane by lane.
        """
        kept = keeps_state(self.task.env)
        ask = ["lanes", *(("step", "env") if kept else ())]
        if not self.plan.free:  # what a free run has under way is lost with it
            ask.append("made")
        here = self._present()
        got = self.backend.get([copy.snapshot(*ask) for copy in here.values()])
        said = dict(zip(here, got, strict=True))
        parts = [
            said[i] if i in said or not self.crew else self.crew.parts(i)
            for i in range(len(self.policy))
        ]
        tree = {"learner": self.learner(), "recent": self.recent}
        tree |= {
            name: concat_lanes([part[name] for part in parts]) for name in ask if name in parts[0]
        }
        return tree | {"pending": self._in_flight(tree.pop("made", ()))}

    def _in_flight(self, kept: tuple[Tree, ...]) -> list[Rollout]:
        """The rounds in flight as values, lane by lane; `kept` are items that the policy has."""
        flying = []
        for i, made in enumerate(self.pending):
            items, summary, outcome = (concat_lanes(self.backend.get(part)) for part in made)
            flying.append(Rollout(kept[i] if kept else items, summary, outcome))
        return without_keys(flying)

    def tree_like(self, in_flight: int) -> dict[str, Tree]:
        """What `tree` gives, as shapes and types, with so many rounds in flight."""
        items, summary = initial.produced_like(self.task, self.task.lanes)
        made = Rollout(items, summary, initial.outcome_like(self.task))
        return self.tree() | {"pending": jax.eval_shape(without_keys, [made] * in_flight)}

    def restore(self, tree: dict[str, Tree], memory: Tree, round: int, steps: int) -> None:
        """Go on from what `tree` and `stored` once gave. Host environments start new episodes."""
        if self.plan.free and tree["pending"]:
            raise RondelError(
                f"This checkpoint has {len(tree['pending'])} rounds in flight, which a free run "
                "would lose: go on without --free."
            )
        if self.lowering.kind is Kind.DATA_PARALLEL and tree["pending"]:
            raise RondelError(
                "This checkpoint has rounds in flight, which one program on several devices can't "
                "learn from. Use --on processes."
            )
        self.round, self.steps, self.free = round, steps, None
        self.recent = RecentEpisodes(*tree["recent"])
        kept = keeps_state(self.task.env)
        home = self.memory is self.policy  # then items in flight are there already
        flying = [Rollout(*made) for made in tree["pending"]]
        asked = [copy.restore({"learner": tree["learner"]}) for copy in self.update]
        for copy, part in zip(self.memory, shards_of(memory, len(self.memory)), strict=True):
            asked.append(copy.restore({"memory": part}))
        names = ("lanes", "step", "env") if kept else ("lanes",)
        lanes = {name: tree[name] for name in names}
        made = tuple(made.items for made in flying) if home else ()
        here = self._present()
        for i, copy in enumerate(self.policy):
            mine = take_share(LaneShare(i, len(self.policy)), (lanes | {"made": made},))
            if self.crew and i not in here:
                self.crew.restore(i, mine)
                continue
            asked.append(copy.restore(mine))
            if not kept:
                asked.append(copy.begin_again(round))
        self.backend.get(asked)
        self.pending = deque(self._parts(made, home) for made in flying)
        self.weights = self.update[0].acting()
        self.backend.settled(now=True)

    def _parts(self, made: Rollout, home: bool) -> Rollout:
        """A round in flight, as the copies of this plan would have made it."""
        n = len(self.policy)
        each = [[take_share(LaneShare(i, n), (part,)) for i in range(n)] for part in made]
        return Rollout([None] * n if home else each[0], *each[1:])

    def stored(self) -> Tree:
        """What memory holds; a tuple of shards where there are several."""
        parts = self.backend.get([copy.snapshot("memory") for copy in self.memory])
        shards = tuple(part["memory"] for part in parts)
        return shards[0] if len(shards) == 1 else shards

    def glances(self) -> list[list[TimingSummary]]:
        """What each piece's copies last said in passing of where their time goes: nobody is asked.

        Environments that a policy drives say it to the policy, which says it with what it answers.
        """
        here = list(self._present().values())
        driven: dict[int, TimingSummary] = {}
        for copy in here:
            if seen := copy.latest_timings():
                for env, said in seen.driven.items():
                    if env not in driven or driven[env].seconds < said.seconds:
                        driven[env] = said
        glances = []
        for piece in self.copies:
            every = here if piece is self.policy else piece
            heard = {
                i: seen.mine for i, copy in enumerate(every) if (seen := copy.latest_timings())
            }
            heard |= driven if piece is self.env and piece is not self.policy else {}
            glances.append([heard[i] for i in sorted(heard)])
        return glances

    def settle(self) -> None:
        """After a round: is everything compiled by now? Then a profile begins here.

        To ask everyone is to wait for them, so it is done once.
        """
        if self.base is None and self.round > self.task.algorithm.memory.warmup_rounds:
            self._warm += 1
            if self._warm >= (1 if self.fused else _WARM):
                everyone = [told for piece in self.metered() for _, told in piece]
                driver = self.meter.report()
                spent = {told.who: told for told in (*everyone, driver)}
                self.base = TimingBaseline(self.round, spent, self.backend.restarts())

    def metered(self) -> list[list[tuple[str, TimingReport]]]:
        """Where the time of each piece's copies went, by name; who share a thread say the same."""
        here = list(self._present().values())
        every = [here if piece is self.policy else piece for piece in self.copies]
        told = [[(copy.name, self._clocked(copy)) for copy in piece] for piece in every]
        if not self.lowering.in_driver:  # then none of their marks was the driver's
            self.meter.mark("driver", ROUNDS)
        return told

    def _clocked(self, copy: Copy) -> TimingReport:
        """What a copy's meter says, in time of this machine as far as that can be known."""
        asked = time.time()
        told: TimingReport = self.backend.get([copy.metered()])[0]
        answered = time.time()
        ahead = told.clock - (asked + answered) / 2
        return told if abs(ahead) <= (answered - asked) / 2 else told.earlier(ahead)

    def close(self) -> None:
        """End what runs elsewhere, and free what the environments hold."""
        self.backend.close()


def shards_of(memory: Tree, copies: int) -> tuple[Tree, ...]:
    """What `Ring.stored` gave, shard by shard."""
    return (memory,) if copies == 1 else tuple(memory)
