"""Rings that differ by their seed alone: one compiled program for all of them.

On CPUs the program of one ring runs for each of them, on as many threads as XLA has: stacking them
takes longer there, and rounds differently from a ring alone.

On accelerators their states are stacked, [N, ...], and a round is the round of `fused` under
`vmap`. A call ends when the first of those that go on is at its end. A ring that has ended keeps
its state, and its place in the program runs idle.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from rondel.execution.backends.inline import Inline, InlineProxy
from rondel.execution.backends.lowering import Lowering
from rondel.execution.backends.protocol import Copy
from rondel.execution.loop.ring import UNCUT, Ring
from rondel.execution.loop.rounds import Report, collect_fused_reports
from rondel.execution.loop.sync_loop import Limits
from rondel.execution.requests import ACTING, COMPUTE_ROUNDS, SNAPSHOT, Request
from rondel.execution.stages import learning
from rondel.execution.stages.episode_stats import RecentEpisodes
from rondel.execution.stages.round import Round, State, compute_round
from rondel.execution.stages.task import Task, bytes_of, check_fits_in_memory
from rondel.execution.telemetry.timing import PYTHON, Meter, Metered
from rondel.execution.workers import fused
from rondel.execution.workers.programs import compile_programs
from rondel.execution.workers.stage_worker import StageWorker
from rondel.types import Array, Tree

_STATES = ("learner", "env", "step", "lanes", "memory")
_LAST = 2**30  # no round is beyond
_Done: TypeAlias = dict[int, tuple[RecentEpisodes, list[Round]]]


class SeedRings(Metered):
    """Drives rings that differ by their seed alone; each has `backend(i)` and a worker.

    The workers share their programs. While they are stacked, their states are here.
    """

    def __init__(self, task: Task, seeds: Sequence[int], stacked: bool | None = None) -> None:
        self.task, self.seeds = task, np.array(seeds, np.uint32)
        self.stacked = jax.default_backend() != "cpu" if stacked is None else stacked
        programs = compile_programs(task, task.lanes)
        held = len(seeds) * bytes_of(jax.eval_shape(programs.init_memory))
        check_fits_in_memory(held, work="fewer seeds or a smaller capacity")
        self.workers = [
            StageWorker(task._replace(seed=int(seed)), UNCUT, 0, 0, programs) for seed in self.seeds
        ]
        self._stack: dict[str, Tree] = {}  # [N, ...]: a place for all, also for those that ended
        self._inside: set[int] = set()  # workers whose states are only there
        self._at = jax.jit(lambda tree, i: jax.tree.map(lambda x: x[i], tree))
        self._join = jax.jit(lambda *trees: jax.tree.map(lambda *xs: jnp.stack(xs), *trees))
        self._compute_rounds = jax.jit(stacked_program(task), donate_argnums=2)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self._pool = ThreadPoolExecutor(min(cores, len(seeds)), "rondel seed")
        self._compiled = False
        self._copy = InlineProxy("all", self, Meter())

    def backend(self, number: int) -> SeedBackend:
        """Where the ring of that number is."""
        return SeedBackend(self, number)

    @property
    def capacity(self) -> int:
        """The number of rounds that a call can report on."""
        rings = len(self.seeds) if self.stacked else 1
        return fused.max_rounds_per_call(self.task._replace(lanes=rings * self.task.lanes))

    def run_next_rounds(
        self, rings: Sequence[Ring], going: Sequence[int], limits: Sequence[Limits], rounds: int
    ) -> dict[int, list[Report]]:
        """Up to `rounds` rounds of each ring that is going, until its steps or one return."""
        pairs = zip(rings, limits, strict=True)
        done: _Done = self._copy.send(
            COMPUTE_ROUNDS,
            going,
            [ring.recent for ring in rings],
            [ring.round for ring in rings],
            rounds,
            [min(max(limit.steps - ring.steps, 0), 2**31 - 1) for ring, limit in pairs],
            limits[0].until_return,
        )
        reports = {i: collect_fused_reports(rings[i], *done[i]) for i in going}
        for i in going:
            rings[i].take_baseline()
        self.meter.mark("driver", PYTHON)
        return reports

    def fetch(self, i: int, names: Sequence[str] = _STATES) -> None:
        """Bring states of a worker out of the stack; there they stay."""
        for name in names if i in self._inside else ():
            setattr(self.workers[i], name, self._at(self._stack[name], i))

    def release(self, i: int) -> None:
        """Forget what was brought: memory may be large, and is in the stack."""
        for name in _STATES if i in self._inside else ():
            setattr(self.workers[i], name, ())

    def end(self, i: int) -> None:
        """End a ring: its worker has its states itself."""
        self.fetch(i)
        self._inside.discard(i)
        if not self._inside:
            self._stack = {}

    def _enter(self, going: Sequence[int]) -> None:
        """Stack the states of all seeds, ended ones too, so that the program stays the same."""
        if self._stack:
            return
        for name in _STATES:
            self._stack[name] = self._join(*(getattr(worker, name) for worker in self.workers))
            for i in going:
                setattr(self.workers[i], name, ())
        self._inside = set(going)

    def compute_rounds(
        self,
        going: Sequence[int],
        recent: Sequence[RecentEpisodes],
        round: Sequence[int],
        rounds: int,
        steps_left: Sequence[int],
        until_return: float,
    ) -> _Done:
        """Up to `rounds` rounds of those that are going."""
        if self.stacked:
            steps = np.array(steps_left, np.int32)
            return self._compute_stacked(going, recent, round, rounds, steps, until_return)

        def one(i: int) -> tuple[RecentEpisodes, list[Round]]:
            worker = self.workers[i]
            return worker.compute_rounds(recent[i], round[i], rounds, steps_left[i], until_return)

        first = {} if self._compiled else {going[0]: one(going[0])}  # two would compile it twice
        self._compiled = True
        rest = [i for i in going if i not in first]
        return first | dict(zip(rest, self._pool.map(one, rest), strict=True))

    def _compute_stacked(
        self,
        going: Sequence[int],
        recent: Sequence[RecentEpisodes],
        round: Sequence[int],
        *limits: Any,
    ) -> _Done:
        self._enter(going)
        learner, env, step, lanes, memory = (self._stack[name] for name in _STATES)
        every = jax.tree.map(lambda *xs: np.stack(xs), *recent)
        state, memory, reports, n = self._compute_rounds(
            self.seeds,
            State(learner, env, step, lanes, every),
            memory,
            self.workers[0].lane,
            np.isin(np.arange(len(self.seeds)), going),
            np.array(round, np.int32),
            *limits,
        )
        self._stack = dict(zip(_STATES, (*state[:4], memory), strict=True))
        reports, last = jax.tree.map(np.asarray, (reports, state.recent))

        def at(tree: Tree, *where: int) -> Any:
            return jax.tree.map(lambda x: np.asarray(x[where]), tree)

        return {i: (at(last, i), [at(reports, r, i) for r in range(int(n))]) for i in going}

    def close(self) -> None:
        """End the threads; the states of the rings can still be read."""
        self._pool.shutdown()


def stacked_program(task: Task) -> Any:
    """`compute_rounds(seed, state, memory, lane, going, round, rounds, steps_left, until_return)`.

    All but `lane`, `rounds` and `until_return` are of each ring [N, ...]; see `fused_program`.
    """

    def compute_rounds(
        seed: Array,
        state: State,
        memory: Tree,
        lane: Array,
        going: Array,
        round: Array,
        *limits: Array,
    ) -> tuple[State, Tree, Round, Array]:
        def one(state: State, memory: Tree, i: Array) -> Any:
            # the same for all: a loop whose length differs would copy all of memory in every turn
            coldest = jnp.min(round, where=going, initial=_LAST)
            draws = learning.draw_count(task, coldest + i)

            def of_ring(seed: Array, state: State, memory: Tree, round: Array) -> Any:
                return compute_round(task, seed, state, memory, lane, round, draws=draws)

            return jax.vmap(of_ring)(seed, state, memory, round + i)

        most = fused.max_rounds_per_call(task._replace(lanes=len(seed) * task.lanes))
        return fused.repeat_rounds(one, state, memory, most, *limits, going=going)

    return compute_rounds


class SeedProxy(InlineProxy):
    """The worker of one seed, whose states may be in the stack of all."""

    def __init__(self, rings: SeedRings, number: int) -> None:
        super().__init__("all", rings.workers[number], rings.meter)
        self._rings, self._number = rings, number

    def send(self, request: Request, *args: Any) -> Any:
        if request is ACTING:
            self._rings.fetch(self._number, ("learner",))
        elif request is SNAPSHOT:
            self._rings.fetch(self._number, [n for n in _STATES if not args or n in args])
        try:
            return super().send(request, *args)
        finally:
            self._rings.release(self._number)


class SeedBackend(Inline):
    """The backend of one ring of several."""

    def __init__(self, rings: SeedRings, number: int) -> None:
        super().__init__()
        self._rings, self._number, self.meter = rings, number, rings.meter

    def launch(self, task: Any, lowering: Lowering) -> list[list[Copy]]:
        self._copies = [SeedProxy(self._rings, self._number)]
        return [list(self._copies)]


def can_stack(task: Task, rounds: Sequence[int]) -> bool:
    """Can rings at these rounds be stacked? All must be past their warm-up, or at one round."""
    return len(set(rounds)) == 1 or min(rounds) >= task.algorithm.memory.warmup_rounds
