"""Rings that differ by their seed alone, side by side: one XLA program, compiled once for all.

On accelerators their states are stacked, [N, ...], and a round is the round of `fused` under
`vmap`. The program comes back when the first of those that go on is at its end; a ring that has
ended keeps what it was then, and its place in the program runs idle.

On CPUs each ring is apart, and the program of a single ring runs for each of them, on as many
threads as XLA has: to stack them takes longer there, and rounds otherwise than a ring alone.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rondel.execution.backends.inline import Inline, InlineProxy
from rondel.execution.backends.lowering import lower
from rondel.execution.backends.protocol import Copy
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.rounds import Report, make_report
from rondel.execution.loop.sync_loop import Limits
from rondel.execution.requests import ADVANCE
from rondel.execution.stages import acting, learning
from rondel.execution.stages.episode_stats import RecentEpisodes, mean_return
from rondel.execution.stages.memory_limit import check_fits_in_memory
from rondel.execution.stages.task import (
    Task,
    jit_computed_leaves,
    with_keys,
    without_keys,
)
from rondel.execution.telemetry.timing import Meter, Metered
from rondel.execution.workers import fused
from rondel.plan.plan import Plan
from rondel.types import Array, Tree

_PARTS = ("learner", "env", "step", "lanes", "memory")
_LAST = 2**30  # no round is beyond


class Vector(Metered):
    """The states of several rings: each apart, until they first advance if they are `stacked`."""

    def __init__(self, task: Task, seeds: Sequence[int], stacked: bool | None = None) -> None:
        self.task, self.seeds = task, np.array(seeds, np.uint32)
        self.stacked = jax.default_backend() != "cpu" if stacked is None else stacked
        self.lane = np.arange(task.lanes, dtype=np.int32)
        items, _ = acting.produced_like(task, task.lanes)
        empty = jax.jit(partial(task.algorithm.memory.init, items, 1))
        held = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(jax.eval_shape(empty)))
        check_fits_in_memory(len(seeds) * held, work="fewer seeds, or a smaller capacity,")
        init = learning.learner_initialiser(task)
        lanes = jax.jit(partial(acting.first_lanes, task))(self.lane)
        self.start = acting.episode_starter(task)
        self.acting = jit_computed_leaves(task.algorithm.acting)
        self._apart: dict[int, dict[str, Tree]] = {
            i: {"learner": init(seed), "lanes": lanes, "memory": empty(), "env": (), "step": ()}
            for i, seed in enumerate(self.seeds)
        }
        self._whole: dict[str, Tree] = {}  # [N, ...]: a place for all, whoever is apart
        self._at = jax.jit(lambda tree, i: jax.tree.map(lambda x: x[i], tree))
        self._stacked = jax.jit(lambda *trees: jax.tree.map(lambda *xs: jnp.stack(xs), *trees))
        self._program = jax.jit(program(task), donate_argnums=2)
        self._single = jax.jit(fused.fused_program(task), donate_argnums=2)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self._pool = ThreadPoolExecutor(min(cores, len(seeds)), "rondel seed")
        self._compiled = False

    @property
    def capacity(self) -> int:
        """How many rounds a call can report on."""
        rings = len(self.seeds) if self.stacked else 1
        return fused.max_rounds_per_call(self.task._replace(lanes=rings * self.task.lanes))

    def read(self, i: int, name: str) -> Tree:
        """Some of what a ring is."""
        if i in self._apart:
            return self._apart[i][name]
        return self._at(self._whole[name], i)

    def write(self, i: int, name: str, tree: Tree) -> None:
        """Let it be that."""
        self.part(i)
        self._apart[i][name] = tree

    def part(self, i: int) -> None:
        """A ring that goes on no more with the others."""
        if i not in self._apart:
            self._apart[i] = {name: self.read(i, name) for name in _PARTS}
        if len(self._apart) == len(self.seeds):
            self._whole = {}

    def _join(self, going: Sequence[int]) -> None:
        """Stack them all: the same program, and so the same numbers, whoever has ended before."""
        if self._whole:
            return
        for name in _PARTS:
            self._whole[name] = self._stacked(
                *(self._apart[i][name] for i in range(len(self.seeds)))
            )
            for i in going:  # not held twice: memory may be large
                del self._apart[i][name]
        for i in going:
            del self._apart[i]

    def advance(
        self,
        going: Sequence[int],
        recent: Sequence[RecentEpisodes],
        round: Sequence[int],
        *limits: Any,
    ) -> dict[int, tuple[RecentEpisodes, fused.Round]]:
        """Up to some rounds of those that are going -> what each has to report [rounds, ...].

        `limits` are the rounds, the steps that each ring has left, and until which return.
        """
        if self.stacked:
            return self._together(going, recent, round, *limits)

        def one(i: int) -> tuple[RecentEpisodes, fused.Round]:
            return self._alone(i, recent[i], round[i], *limits)

        first = {} if self._compiled else {going[0]: one(going[0])}  # two would compile it twice
        self._compiled = True
        rest = [i for i in going if i not in first]
        return first | dict(zip(rest, self._pool.map(one, rest), strict=True))

    def _alone(
        self,
        i: int,
        recent: RecentEpisodes,
        round: int,
        rounds: int,
        left: Sequence[int],
        until: float,
    ) -> tuple[RecentEpisodes, fused.Round]:
        mine = self._apart[i]
        state, memory, reports, n = self._single(
            self.seeds[i],
            _state(mine, recent),
            mine["memory"],
            self.lane,
            round,
            rounds,
            left[i],
            until,
        )
        self._apart[i] = dict(zip(_PARTS, (*state[:4], memory), strict=True))
        reports, last = jax.tree.map(np.asarray, (reports, state.recent))
        return last, jax.tree.map(lambda x: x[: int(n)], reports)

    def _together(
        self,
        going: Sequence[int],
        recent: Sequence[RecentEpisodes],
        round: Sequence[int],
        *limits: Any,
    ) -> dict[int, tuple[RecentEpisodes, fused.Round]]:
        self._join(going)
        rounds, left, until = limits
        state, memory, reports, n = self._program(
            self.seeds,
            _state(self._whole, jax.tree.map(lambda *xs: np.stack(xs), *recent)),
            self._whole["memory"],
            self.lane,
            np.isin(np.arange(len(self.seeds)), going),
            np.array(round, np.int32),
            rounds,
            np.array(left, np.int32),
            until,
        )
        self._whole = dict(zip(_PARTS, (*state[:4], memory), strict=True))
        reports, last = jax.tree.map(np.asarray, (reports, state.recent))

        def of(i: int) -> tuple[RecentEpisodes, fused.Round]:
            told = jax.tree.map(lambda x: x[: int(n), i], reports)
            return jax.tree.map(lambda x: np.asarray(x[i]), last), told

        return {i: of(i) for i in going}

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


def _state(parts: dict[str, Tree], recent: RecentEpisodes) -> fused.State:
    return fused.State(parts["learner"], parts["env"], parts["step"], parts["lanes"], recent)


def program(task: Task) -> Any:
    """`advance(seed, state, memory, lane, going, round, rounds, steps_left, until_return)`.

    All but `lane`, `rounds` and `until_return` are of each ring [N, ...]; see `fused.program`.
    """

    def advance(
        seed: Array,
        state: fused.State,
        memory: Tree,
        lane: Array,
        going: Array,
        round: Array,
        rounds: Array,
        steps_left: Array,
        until_return: Array,
    ) -> tuple[fused.State, Tree, fused.Round, Array]:
        def one(state: fused.State, memory: Tree, i: Array) -> Any:
            # the same for all: a loop whose length differs would copy all of memory in every turn
            coldest = jnp.min(round, where=going, initial=_LAST)
            draws = learning.draw_count(task, coldest + i)

            def of_ring(seed: Array, state: fused.State, memory: Tree, round: Array) -> Any:
                return fused.compute_round(task, seed, state, memory, lane, round, draws=draws)

            return jax.vmap(of_ring)(seed, state, memory, round + i)

        def is_over(state: fused.State, steps: Array) -> Array:
            solved = jax.vmap(mean_return)(state.recent) >= until_return
            return (steps >= steps_left) | solved

        most = fused.max_rounds_per_call(task._replace(lanes=len(seed) * task.lanes))
        return fused.repeat_rounds(one, is_over, state, memory, rounds, most, going)

    return advance


class Seed(Metered):
    """One ring of several; it answers what a fused fragment is asked between its rounds."""

    def __init__(self, vector: Vector, number: int) -> None:
        self.vector, self.number = vector, number

    def begin(self, again: int = 0) -> None:
        """Begin an episode in every lane, others for each number `again`."""
        vector, i = self.vector, self.number
        env, step = vector.start(vector.seeds[i], vector.lane, again)
        vector.write(i, "env", env)
        vector.write(i, "step", step)

    def acting(self) -> Tree:
        """What the policy needs to know of the learner."""
        return self.vector.acting(self.vector.read(self.number, "learner"))

    def snapshot(self, *names: str) -> dict[str, Tree]:
        """The states by name, keys as plain numbers."""
        mine = [name for name in _PARTS if not names or name in names]
        parts = {name: without_keys(self.vector.read(self.number, name)) for name in mine}
        return parts | {"made": ()}

    def restore(self, parts: dict[str, Tree]) -> None:
        """Go on from what `snapshot` once gave, or from some of it."""
        parts.pop("made", None)
        for name, tree in parts.items():
            like = self.vector.read(self.number, name)
            tree = with_keys(like, jax.tree.map(jnp.array, tree))
            self.vector.write(self.number, name, tree)

    def close(self) -> None:
        """Nothing to free."""


class InVector(Inline):
    """The backend of one ring of several."""

    def __init__(self, rings: Rings, number: int) -> None:
        super().__init__()
        self._rings, self._number, self.meter = rings, number, rings.meter

    def launch(self, task: Any, plan: Plan) -> list[list[Copy]]:
        self.lowering, rings = lower(task, plan, in_driver=True), self._rings
        self._copies = [InlineProxy("all", Seed(rings.vector, self._number), rings.meter)]
        return [list(self._copies)]


class Rings:
    """Drives the rings of a vector, whose states it has: each ring has `backend(i)`."""

    def __init__(self, task: Task, seeds: Sequence[int], stacked: bool | None = None) -> None:
        self.vector, self.meter = Vector(task, seeds, stacked), Meter()
        self._copy = InlineProxy("all", self.vector, self.meter)

    def backend(self, number: int) -> InVector:
        """Where the ring of that number is."""
        return InVector(self, number)

    def advance(
        self, rings: Sequence[Ring], going: Sequence[int], limits: Limits, rounds: int
    ) -> dict[int, list[Report]]:
        """Up to `rounds` rounds -> the reports of those rings that are still going."""
        left = [min(max(limits.steps - ring.steps, 0), 2**31 - 1) for ring in rings]
        told = self._copy.send(
            ADVANCE,
            going,
            [ring.recent for ring in rings],
            [ring.round for ring in rings],
            rounds,
            left,
            limits.until_return,
        )
        return {i: _counted(rings[i], *told[i]) for i in going}

    def end(self, number: int) -> None:
        """A ring that stays what it is now."""
        self.vector.part(number)

    def close(self) -> None:
        """End the threads; what the rings are can still be asked for."""
        self.vector.close()


def _counted(ring: Ring, recent: RecentEpisodes, done: fused.Round) -> list[Report]:
    """Move a ring past its rounds [rounds, ...]."""
    ended = int(ring.recent.ended)
    ring.recent = recent
    reports = []
    for n in range(len(done.outcome.valid)):
        one = jax.tree.map(lambda x, n=n: x[n], done)
        reports.append(make_report(ring, ended, one.outcome, one.metrics, one.means))
        ended = reports[-1].episodes
    ring.weights = ring.update[0].acting()
    return reports


def in_step(task: Task, rounds: Sequence[int]) -> bool:
    """Can rings that are at these rounds be stacked? All must be warm, or equally cold."""
    return len(set(rounds)) == 1 or min(rounds) >= task.algorithm.memory.warmup_rounds
