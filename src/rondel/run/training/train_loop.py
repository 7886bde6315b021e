"""A run, or several side by side, from the first round to the last.

What happens after each round is a list of hooks (`hooks`). A kill at any instant leaves a run that
can go on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import groupby
from pathlib import Path
from typing import Any

from rondel.algorithms import catalogue
from rondel.envs.guard.crash_report import forbid_exit_zero
from rondel.envs.guard.guarded_env import with_deadline
from rondel.execution.backends import registry
from rondel.execution.loop import seed_parallel
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.rounds import Report
from rondel.execution.loop.sync_loop import (
    Limits,
    NotFinite,
    is_finished,
    next_pace,
    run_next_rounds,
    stop_if_not_finite,
)
from rondel.execution.telemetry.timing import STARTING
from rondel.execution.workers.fused import max_rounds_per_call
from rondel.run.display.display import Display
from rondel.run.policy.evaluation import Evaluator
from rondel.run.preflight import render
from rondel.run.session.run import Run
from rondel.run.setup import jax_process
from rondel.run.setup.prepare import PASSED_IN, Setup, is_own_network
from rondel.run.setup.shape_model import MemoryEstimate, estimate
from rondel.run.storage import run_folder
from rondel.run.training.hooks import Hook, Metrics, Profiling, Progress, Throughput, hooks_of
from rondel.run.training.signals import StopRequest, end_on_sigterm, stop_on_signals
from rondel.types import HostWorld

CHECKPOINT_SECONDS = 60.0
EXITED_EARLY = (
    "os._exit was called in this process, by an environment or a library. The run is not finished; "
    "`rondel resume` continues from its last checkpoint."
)
_log = logging.getLogger("rondel")


def estimate_memory(setup: Setup, rings: int = 1) -> tuple[MemoryEstimate, int]:
    """The memory that runs will take, so many at a time, and what is free; warns of too little.

    It traces what will be compiled, which takes a moment: only where someone is shown it.
    """
    on, free = setup.options.on, jax_process.free_memory()
    cost = estimate(setup.task, setup.lowering, on).times(rings)
    here = not (registry.find(on).remote and setup.options.address)
    if here and (warning := cost.warning(free)):
        _log.warning("%s", warning)
    return cost, free


def resume_command(setup: Setup, path: Path, log: Sequence[str]) -> str:
    """The command that continues a run which was stopped, with what is to be named again."""
    again = [("log", name) for name in log]
    if setup.name not in catalogue.TABLE:
        again.append(("algorithm", setup.name))
    if setup.env_named and not run_folder.can_be_made(setup.env_id):
        again.append(("env", setup.env_named))
    if is_own_network(network := getattr(setup.config, "network", None)):
        again.append(("network", str(network)))
    words = [f"--{option} {name}" for option, name in again if not name.startswith(PASSED_IN)]
    return f"`{' '.join(['rondel resume', str(path), *words])}`"


def evaluator_for(setup: Setup, episodes: int) -> Evaluator | None:
    """What plays the greedy episodes of a run, if it is to play any; seeds can share it."""
    if not episodes:
        return None
    env = with_deadline(setup.task.env, setup.options.deadline)
    return Evaluator(setup.task.algorithm, env, episodes)


class HookedRun:
    """A run with its hooks, from where it is now; within its `with` they can write."""

    def __init__(
        self,
        run: Run,
        began: float,
        log: Sequence[str],
        display: Display,
        own: Sequence[Hook],
        evaluator: Evaluator | None,
    ) -> None:
        self.run = run
        self._metrics = metrics = Metrics(run, log, display.note)
        clock = Throughput(run, began - metrics.seconds)
        self.profiling = Profiling(run)
        self._hooks = hooks_of(run, metrics, clock, display, evaluator, self.profiling, own)
        heard = [hook for hook in self._hooks if type(hook).after_round is not Hook.after_round]
        self._kinds = [(kind, list(some)) for kind, some in groupby(heard, lambda one: one.kind)]
        self.pauses = {hook.pause_every for hook in heard} - {0}
        self._saved = run.ring.round if run.checkpoint else None  # the newest checkpoint's round
        self._clock, self._stack = clock, ExitStack()

    @property
    def limits(self) -> Limits:
        """How far the next call may go: to where a hook is to see the run, or its end."""
        run = self.run
        ends = [run.limits.steps, *((run.steps // every + 1) * every for every in self.pauses)]
        return run.limits._replace(steps=min(ends))

    def take(self, reports: list[Report]) -> bool:
        """Let the hooks see the rounds of a call; True if one of them ends the run there."""
        run, over = self.run, False
        stop_if_not_finite(reports, run.advice)
        for record in self._clock.records(reports):
            for kind, hooks in self._kinds:
                for hook in hooks:
                    over = bool(hook.after_round(run, record)) or over
                run.ring.meter.mark("driver", kind)
        return over or is_finished(run.ring, run.limits)

    @property
    def is_saved(self) -> bool:
        """Is the newest checkpoint of this very round?"""
        return self._saved == self.run.ring.round

    def checkpoint(self) -> None:
        """A checkpoint, unless it is there."""
        if not self.is_saved:
            for hook in self._hooks:
                hook.at_checkpoint(self.run)
                self.run.ring.meter.mark("driver", hook.kind)
            self._saved = self.run.ring.round

    def finish(self) -> None:
        """All that is done once, behind the last round."""
        for hook in self._hooks:
            hook.at_end(self.run)

    def fail(self, error: Exception) -> None:
        """End it here, for what went wrong with this run alone."""
        self._stack.__exit__(type(error), error, error.__traceback__)

    def __enter__(self) -> HookedRun:
        with ExitStack() as stack:  # what has begun ends if the next one fails to begin
            for hook in self._hooks:
                if isinstance(hook, Metrics | Progress):
                    hook.open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.__exit__(*raised)


@contextmanager
def compile_notice(ring: Ring, first: int, say: Callable[[str], None]) -> Iterator[None]:
    """Say when a call compiles programs, which would look like a hang, and how long that took.

    What acts is compiled in the `first` round here, and what learns too where it is one program,
    else in the first round that draws.
    """
    draws = ring.round == ring.task.algorithm.memory.warmup_rounds
    if ring.round == first:
        name = "first round"
    elif draws and not ring.lowering.learns_in_one_program:
        name = "first learning round"
    else:
        yield
        return
    say(f"Compiling for the {name}; this can take a while.")
    began = time.monotonic()
    yield
    say(f"Compiled; {name} took {time.monotonic() - began:.1f} s.")


def run_rings(
    rings: seed_parallel.SeedRings | None,
    runs: Sequence[HookedRun],
    say: Callable[[str], None],
    stop: StopRequest | None = None,
) -> dict[int, NotFinite]:
    """Run all to their ends, each saved there and finished -> those whose loss is not finite.

    Ctrl-C and SIGTERM, or a `stop` that others listen for, end them after a round, saved.
    """
    with stop_on_signals() if stop is None else nullcontext(stop) as asked:
        lost = run_rounds(rings, runs, say, asked)
    if asked.is_set():
        raise asked.error()
    with end_on_sigterm() if stop is None else nullcontext():
        for i, one in enumerate(runs):
            if i not in lost:
                one.finish()
    return lost


def run_rounds(
    rings: seed_parallel.SeedRings | None,
    runs: Sequence[HookedRun],
    say: Callable[[str], None],
    stop: StopRequest,
) -> dict[int, NotFinite]:
    """All rounds, until every run is over or `stop` is set -> those whose loss is not finite."""
    each = [one.run.ring for one in runs]
    going = [i for i, one in enumerate(runs) if not is_finished(each[i], one.run.limits)]
    lost: dict[int, NotFinite] = {}
    rounds, saved = 1, time.monotonic()
    first = each[0].round
    capacity = rings.capacity if rings else max_rounds_per_call(each[0].task)
    each[0].meter.mark("driver", STARTING)
    while going and not stop.is_set():
        began = time.monotonic()
        with compile_notice(each[0], first, say):
            if rings:
                reports = rings.run_next_rounds(each, going, [one.limits for one in runs], rounds)
            else:
                reports = {0: run_next_rounds(each[0], runs[0].limits, rounds)}
        rounds = next_pace(rounds, time.monotonic() - began, capacity)
        if any(1 in one.pauses for one in runs):
            rounds = 1  # a round in which every lane resets has no steps to pause at
        for i in list(going):
            try:
                over = runs[i].take(reports[i])
            except NotFinite as error:
                lost[i], over = error, True
                runs[i].fail(error)
            if over:
                going.remove(i)
                if rings:
                    rings.end(i)
                if i not in lost:
                    runs[i].checkpoint()
        if time.monotonic() - saved > CHECKPOINT_SECONDS:
            for i in going:
                runs[i].checkpoint()
            saved = time.monotonic()
    for i, one in enumerate(runs):
        if i not in lost:
            one.checkpoint()
    return lost


def run_training(
    run: Run,
    memory: tuple[MemoryEstimate, int] | None,
    own: Sequence[Hook],
    display: Display,
    began: float,
    log: Sequence[str],
    stop: StopRequest | None = None,
) -> Run:
    """Run to the limits, with all hooks; `stop` is given to one of several seeds."""
    assert run.path is not None
    is_host = isinstance(run.setup.task.env, HostWorld)  # others run in JAX
    with forbid_exit_zero(EXITED_EARLY) if is_host and stop is None else nullcontext(), run:
        evaluator = evaluator_for(run.setup, run.eval_episodes)
        hooked = HookedRun(run, began, log, display, own, evaluator)
        display.start(render.rows(run, *memory) if memory else [])
        ending = f"The run failed; its folder is {run.path}."
        try:
            with hooked:
                lost = run_rings(None, [hooked], display.note, stop)
            if lost:
                raise lost[0]
            assert run.checkpoint is not None
            ending = f"{render.ending(run, run.checkpoint)}\n{hooked.profiling.summary}".rstrip()
        except KeyboardInterrupt:
            ending = f"Stopped at once, without saving; its folder is {run.path}."
            if hooked.is_saved:
                ending = f"Stopped; continue with {resume_command(run.setup, run.path, log)}."
            raise
        finally:
            display.stop(ending)
    return run
