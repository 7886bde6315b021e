"""The backend in the driver's thread: copies take turns, so breakpoints work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from rondel.execution.backends.lowering import Kind, Lowering
from rondel.execution.backends.protocol import Copy, Restarts, worker_factory
from rondel.execution.hostenv.host_envs import DirectEnvClient
from rondel.execution.requests import LEARN, STEP, Request, stage_of
from rondel.execution.telemetry.timing import PYTHON, Meter, PiggybackedTimings, ready
from rondel.execution.workers.data_parallel import data_parallel_programs
from rondel.execution.workers.gradient_parallel import gradient_parallel_programs
from rondel.execution.workers.programs import Programs
from rondel.execution.workers.stage_worker import StageWorker
from rondel.plan.parser import parse
from rondel.plan.plan import copy_name, env_copies_of, has_separate_envs
from rondel.types import Env
from rondel.watchdog import Call, Watchdog


class InlineProxy(Copy):
    """A copy in this thread: a request is answered at once, and its promise is the value."""

    def __init__(self, name: str, worker: Any, meter: Meter) -> None:
        self.name, self.worker = name, worker
        self.meter = worker.meter = meter  # one for all: they take turns
        self._learning = False  # was its last request `learn`?

    def latest_timings(self) -> PiggybackedTimings:
        return PiggybackedTimings(self.meter.summary(), {})

    def send(self, request: Request, *args: Any) -> Any:
        asks, self.meter.copy = self.meter.copy, self.name
        if self.name != "all":  # a single piece does nothing between two requests
            before = "policy" if request is STEP else "driver"  # who asks
            self.meter.ran(before, request.name, PYTHON)
        try:
            result = getattr(self.worker, request.name)(*args)
            # new weights are requested after `learn`, and waiting for them includes it
            stage = "learner" if self._learning else stage_of(self.worker, request)
            self._learning = request is LEARN
            if not self._learning:
                ready(result)
            self.meter.ran(stage, request.name, self.worker.kind)
            return result
        except Exception as error:
            if self.name != "all":
                error.add_note(f"In {self.name}.")
            raise
        finally:
            self.meter.copy = asks


class Inline:
    """The backend that is a plain loop.

    Copies of the whole ring, or of its gradients, may be one program on several devices. A step of
    a host environment that takes more than `deadline` seconds causes a warning.
    """

    def __init__(self, deadline: float = 600.0) -> None:
        self._deadline = deadline
        self._watch: Watchdog | None = None
        self._copies: list[InlineProxy] = []
        self.meter = Meter()  # of this thread: the driver's and all copies'

    def launch(self, task: Any, lowering: Lowering) -> list[list[Copy]]:
        plan, kind = lowering.plan, lowering.kind
        if kind is Kind.DATA_PARALLEL:
            return self._one_worker(data_parallel_programs, task, lowering)
        if not isinstance(task.env, Env):
            find = partial(_host_step, task.env.spec.id, self.meter, self._deadline)
            self._watch = Watchdog(self._deadline, find=find)
        if kind is Kind.GRADIENT_PARALLEL:
            return self._one_worker(gradient_parallel_programs, task, lowering)
        pieces: list[list[Any]] = []
        for piece, (_, copies, _) in enumerate(plan.pieces):
            pieces.append([])
            for copy in range(copies):
                make, args = worker_factory(task, plan, piece, copy)
                made = InlineProxy(copy_name(plan, piece, copy), make(*args), self.meter)
                pieces[-1].append(made)
                self._copies.append(made)
        if has_separate_envs(plan):
            links = [DirectEnvClient(env) for env in pieces[0]]
            for i, policy in enumerate(pieces[1]):
                policy.worker.connect({e: links[e] for e in env_copies_of(plan, i)})
        return pieces

    def _one_worker(
        self, build: Callable[[Any, int], Programs], task: Any, lowering: Lowering
    ) -> list[list[Copy]]:
        """All pieces of a plan as one worker, whose programs run on several devices."""
        programs = build(task, lowering.devices)
        worker = StageWorker(task, parse("all"), 0, 0, programs)
        self._copies = [InlineProxy("all", worker, self.meter)]
        everything: list[Copy] = list(self._copies)
        return [everything] * len(lowering.plan.pieces)

    def get(self, promises: Sequence[Any]) -> list[Any]:
        return list(promises)

    def wait(self, promises: Sequence[Any]) -> list[int]:
        return list(range(len(promises)))

    def after_round(self, now: bool = False) -> None:
        """Nothing dies here but with the driver."""

    def restarts(self) -> Restarts:
        return Restarts()

    def close(self) -> None:
        copies, self._copies = self._copies, []
        if self._watch is not None:
            self._watch.end()
        with ExitStack() as everyone:  # also when one of them fails to
            for copy in copies:
                everyone.callback(copy.worker.close)


def _host_step(env_id: str, meter: Meter, seconds: float) -> Call | None:
    """The step that an environment outside JAX is in, if it is in one."""
    stage, ended = meter.newest()
    # the policy ended last, so it is the environment's turn
    return Call(env_id, "step", seconds, ended) if stage == "policy" else None
