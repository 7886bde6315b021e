"""Runs that differ by their seed alone, from their first rounds to their last.

Where the ring is one program over a JAX environment, all seeds are in one vectorised program.
Elsewhere each has its own ring on the run's backend: some at a time, or one after another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, overload

from rondel.envs.guard.crash_report import forbid_exit_zero
from rondel.execution.backends import registry
from rondel.execution.loop import seed_parallel
from rondel.execution.loop.rounds import Report
from rondel.execution.loop.sync_loop import (
    Limits,
    NotFinite,
    is_finished,
    next_pace,
    stop_if_not_finite,
)
from rondel.execution.telemetry.timing import CALLBACK, OUTPUT, PYTHON
from rondel.run.display.display import Display
from rondel.run.preflight import render
from rondel.run.session.run import Run
from rondel.run.setup import jax_process
from rondel.run.setup.prepare import Setup
from rondel.run.storage import run_folder
from rondel.run.training import train_loop
from rondel.run.training.seed_display import SeedDisplay, SingleSeedDisplay, ending, result
from rondel.run.training.signals import StopRequest, end_on_sigterm, stop_on_signals
from rondel.run.training.train_loop import Callback, RunWriter, resume_command, run_training


class Job(NamedTuple):
    """The run of one seed, before it is made."""

    setup: Setup
    limits: Limits
    machine: str
    path: Path
    eval_episodes: int
    found: Path | None = None  # the checkpoint that it goes on from
    round: int = 0  # of that
    notes: tuple[str, ...] = ()

    @property
    def seed(self) -> int:
        return self.setup.task.seed

    def run(self, backend: Any = None) -> Run:
        """The run itself, as its checkpoint has it."""
        run = Run(self.setup, self.limits, self.machine, self.path, backend)
        try:
            if self.found:
                run.restore(self.found)
        except BaseException:
            run.close()
            raise
        run.eval_episodes = self.eval_episodes
        run.notes += self.notes
        return run


class Runs(Sequence[Run]):
    """The runs of several seeds, in their order."""

    def __init__(self, path: Path, runs: Sequence[Run], seconds: float) -> None:
        self.path = path
        self._runs = tuple(runs)
        self.result = result(path, self._runs, seconds)

    @overload
    def __getitem__(self, index: int) -> Run: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Run]: ...

    def __getitem__(self, index: int | slice) -> Run | Sequence[Run]:
        return self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)


def run_seeds(
    jobs: Sequence[Job],
    path: Path,
    callbacks: Sequence[Callback],
    display: Display | None,
    began: float,
    log: Sequence[str],
) -> Runs:
    """Run all of them to their limits. `path` is the folder that holds theirs."""
    first = jobs[0].setup
    last = f"The runs failed; their folders are in {path}."
    again = resume_command(path, log)
    shown = SeedDisplay(display, path, first, [job.seed for job in jobs])
    try:
        with forbid_exit_zero(train_loop.EXITED_EARLY):
            if first.lowering.stackable:
                runs, lost = _together(jobs, callbacks, shown, began, log)
            else:
                runs, lost = _apart(jobs, callbacks, shown, log)
        if lost:
            last = f"{len(lost)} of {len(jobs)} seeds failed; all folders are in {path}."
            raise _lost(lost, len(jobs))
        done = Runs(path, runs, time.monotonic() - began)
        last = ending(done.result)
    except _Stopped as stopped:
        last = f"Stopped; go on with {again}."
        raise stopped.error from None
    except KeyboardInterrupt:  # a second one, which does not wait
        last = f"Stopped at once; go on with {again} from what was saved."
        raise
    finally:
        run_folder.release(path, *(job.path for job in jobs))
        shown.stop(last)
    return done


class _Stopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM was obeyed: all that was under way is saved."""

    def __init__(self, stop: StopRequest) -> None:
        super().__init__()
        self.error = stop.error()


def _lost(lost: dict[int, NotFinite], of: int) -> NotFinite:
    """What to say of seeds that came to no end."""
    others = "" if len(lost) == of else " The other seeds are at their end."
    return NotFinite(" ".join(f"Seed {seed}: {error}" for seed, error in lost.items()) + others)


# All in one program.


def _together(
    jobs: Sequence[Job],
    callbacks: Sequence[Callback],
    display: SeedDisplay,
    began: float,
    log: Sequence[str],
) -> tuple[list[Run], dict[int, NotFinite]]:
    """Side by side in one program -> the runs, and why some of them are lost."""
    task, room = jobs[0].setup.task, display.fitting(len(jobs))
    stacked = None if seed_parallel.can_stack(task, [job.round for job in jobs]) else False
    rings = seed_parallel.Rings(task, [job.seed for job in jobs], stacked)
    with ExitStack() as stack:
        stack.callback(rings.close)
        runs = [stack.enter_context(job.run(rings.backend(i))) for i, job in enumerate(jobs)]
        for run in runs:
            run.at_a_time = len(runs)
        display.begin(render.rows(runs[0], *room) if room else [], "side by side in one program")
        logs = [
            stack.enter_context(
                RunWriter(run, began, log, partial(display.note, job.seed), job.found)
            )
            for run, job in zip(runs, jobs, strict=True)
        ]
        with stop_on_signals() as stop:
            lost = _rounds(rings, logs, callbacks, display, stop)
            kept = [one for i, one in enumerate(logs) if i not in lost]
            for one in kept:
                one.save()
        if stop.is_set():
            raise _Stopped(stop)
        with end_on_sigterm():
            for one in kept:
                one.finish()
    return runs, {jobs[i].seed: error for i, error in lost.items()}


def _rounds(
    rings: seed_parallel.Rings,
    logs: Sequence[RunWriter],
    callbacks: Sequence[Callback],
    display: SeedDisplay,
    stop: StopRequest,
) -> dict[int, NotFinite]:
    """All rounds up to the limits or the wish to stop -> those whose loss is no number."""
    limits = logs[0].run.limits
    each = [log.run.ring for log in logs]
    going = [i for i, ring in enumerate(each) if not is_finished(ring, limits)]
    lost: dict[int, NotFinite] = {}
    n, last = 1, time.monotonic()
    compiling = train_loop.CompileNotice(logs[0].run, display.say)
    compiling.before()
    while going and not stop.is_set():
        started = time.monotonic()
        told = rings.advance(each, going, limits, n)
        for i in going:
            each[i].settle()
        compiling.after()
        rings.meter.mark("driver", PYTHON)
        most = rings.capacity
        n = 1 if callbacks else next_pace(n, time.monotonic() - started, most)
        for i in list(going):
            try:
                over = _take(logs[i], told[i], callbacks, display)
            except NotFinite as error:
                lost[i], over = error, True
                logs[i].give_up(error)
            if over or is_finished(each[i], limits):
                going.remove(i)
                rings.end(i)
                if i not in lost:
                    logs[i].save()
        if time.monotonic() - last > train_loop.CHECKPOINT_SECONDS:
            for i in going:
                logs[i].save()
            last = time.monotonic()
        rings.meter.mark("driver", OUTPUT)
    return lost


def _take(
    log: RunWriter, reports: list[Report], callbacks: Sequence[Callback], display: SeedDisplay
) -> bool:
    """Write down and show what a seed has done; True if a callback wants it to end there."""
    stop_if_not_finite(reports, log.run.advice)
    answers: list[Any] = []
    meter = log.run.ring.meter
    for report in reports:
        display.update(log.run.setup.task.seed, log.take(report))
        meter.mark("driver", OUTPUT)
        if callbacks:
            answers = [callback(log.run, report) for callback in callbacks]
            meter.mark("driver", CALLBACK)
    return any(answers)


# Each on its own ring.


def _apart(
    jobs: Sequence[Job], callbacks: Sequence[Callback], display: SeedDisplay, log: Sequence[str]
) -> tuple[list[Run], dict[int, NotFinite]]:
    """Each on the run's backend, some at a time -> the runs, and why some of them are lost."""
    lost: dict[int, NotFinite] = {}
    width = parallel_seeds(jobs[0].setup, len(jobs))
    room = display.fitting(width)
    how = "one after another" if width == 1 else f"{width} at a time"
    turn = threading.RLock()

    def called(callback: Callback) -> Callback:
        def one_by_one(run: Run, report: Report) -> Any:
            with turn:
                return callback(run, report)

        return one_by_one

    wrapped = [called(callback) for callback in callbacks]

    def one(job: Job, stop: StopRequest) -> Run | None:
        if stop.is_set():
            raise _Stopped(stop)
        try:
            shown = SingleSeedDisplay(display, job.seed, how)
            began, run = time.monotonic(), job.run()
            stop.listen()  # Ray has its own handler of SIGTERM from its start on
            run.at_a_time = width
            return run_training(run, room, wrapped, shown, began, log, job.found, stop)
        except NotFinite as error:
            lost[job.seed] = error
            return None
        except KeyboardInterrupt:
            if stop.hurried:
                raise
            raise _Stopped(stop) from None
        except BaseException:
            stop.set()  # the others save what they have
            raise

    with stop_on_signals() as stop:
        if width == 1:
            runs = [one(job, stop) for job in jobs]
        else:
            runs = _in_threads(width, [partial(one, job, stop) for job in jobs])
        if stop.is_set():  # while the last of them was evaluated
            raise _Stopped(stop)
    return [run for run in runs if run is not None], lost


def _in_threads(width: int, asked: list[Callable[[], Any]]) -> list[Any]:
    """The answers to all of them; if some failed, one that was not only stopped is raised."""
    with ThreadPoolExecutor(width, "rondel seed") as pool:
        answers = [pool.submit(each) for each in asked]
        wait(answers)
    errors = [error for answer in answers if (error := answer.exception()) is not None]
    errors.sort(key=lambda error: isinstance(error, _Stopped))
    if errors:
        raise errors[0]
    return [answer.result() for answer in answers]


def parallel_seeds(setup: Setup, seeds: int) -> int:
    """How many seeds have a ring at the same time: as many as there are cores for.

    A cluster that a run has started for itself ends with it, so of a remote backend it is one.
    """
    if not registry.find(setup.options.on).beside:
        return 1
    copies = sum(piece.copies for piece in setup.plan.pieces)
    return max(1, min(seeds, jax_process.cores() // copies))
