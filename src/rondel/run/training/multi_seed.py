"""Runs that differ by their seed alone.

Where a run is one program over a JAX environment, all seeds share that program, side by side.
Elsewhere each has its own ring on the run's backend: some at a time, or one after another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from rondel.envs.guard.crash_report import forbid_exit_zero
from rondel.execution.backends import registry
from rondel.execution.loop import seed_parallel
from rondel.execution.loop.sync_loop import NotFinite
from rondel.run.display.display import Display
from rondel.run.display.round_record import RoundRecord
from rondel.run.preflight import render
from rondel.run.session.run import Job, Run
from rondel.run.setup import jax_process
from rondel.run.setup.prepare import Setup
from rondel.run.setup.shape_model import MemoryEstimate
from rondel.run.storage import run_folder
from rondel.run.training import train_loop
from rondel.run.training.hooks import Hook
from rondel.run.training.seed_display import SeedDisplay, ending, result
from rondel.run.training.signals import StopRequest, stop_on_signals
from rondel.types import HostWorld


class Runs(tuple[Run, ...]):
    """The runs of several seeds, in their order, with their folder and what `--json` prints."""

    path: Path
    result: dict[str, Any]


class _Locked(Hook):
    """A user's hook that several threads share: called by one at a time."""

    def __init__(self, hook: Hook, lock: threading.RLock) -> None:
        self._hook, self._lock = hook, lock
        heard = type(hook).after_round is not Hook.after_round
        self.kind, self.pause_every = hook.kind, hook.pause_every if heard else 0

    def after_round(self, run: Run, record: RoundRecord) -> Any:
        with self._lock:
            return self._hook.after_round(run, record)

    def at_checkpoint(self, run: Run) -> None:
        with self._lock:
            self._hook.at_checkpoint(run)

    def at_end(self, run: Run) -> None:
        with self._lock:
            self._hook.at_end(run)


def run_seeds(
    jobs: Sequence[Job],
    path: Path,
    own: Sequence[Hook],
    display: Display | None,
    began: float,
    log: Sequence[str],
) -> Runs:
    """Run all seeds to their limits. `path` is the folder that holds theirs."""
    setup, shown = jobs[0].setup, display or Display()
    stackable = setup.lowering.stackable
    width = len(jobs) if stackable else parallel_seeds(setup, len(jobs))
    how = "one after another" if width == 1 else f"{width} at a time"
    how = "side by side in one program" if stackable else how
    seeds = SeedDisplay(shown, path, [job.seed for job in jobs], how)
    last = f"The runs failed; their folders are in {path}."
    try:
        memory = train_loop.estimate_memory(setup, width) if display else None
        is_host = isinstance(setup.task.env, HostWorld)
        with forbid_exit_zero(train_loop.EXITED_EARLY) if is_host else nullcontext():
            if stackable:
                runs, lost = _together(jobs, own, seeds, memory, began, log)
            else:
                runs, lost = _apart(jobs, own, seeds, memory, width, log)
        if lost:
            last = f"{len(lost)} of {len(jobs)} seeds failed; all folders are in {path}."
            others = "" if len(lost) == len(jobs) else " The other seeds finished."
            said = " ".join(f"Seed {seed}: {error}" for seed, error in lost.items())
            raise NotFinite(said + others)
        done = Runs(runs)
        done.path, done.result = path, result(path, runs, time.monotonic() - began)
        last = ending(done.result)
    except KeyboardInterrupt:
        last = f"Stopped; continue with {train_loop.resume_command(setup, path, log)}."
        raise
    finally:
        run_folder.release(path, *(job.path for job in jobs))
        shown.stop(last)
    return done


def _together(
    jobs: Sequence[Job],
    own: Sequence[Hook],
    display: SeedDisplay,
    memory: tuple[MemoryEstimate, int] | None,
    began: float,
    log: Sequence[str],
) -> tuple[list[Run], dict[int, NotFinite]]:
    """Side by side in one program -> the runs, and by seed why some of them are lost."""
    task = jobs[0].setup.task
    stacked = None if seed_parallel.can_stack(task, [job.round for job in jobs]) else False
    rings = seed_parallel.SeedRings(task, [job.seed for job in jobs], stacked)
    evaluator = train_loop.evaluator_for(jobs[0].setup, jobs[0].eval_episodes)
    with ExitStack() as stack:
        stack.callback(rings.close)
        runs = [stack.enter_context(job.run(rings.backend(i))) for i, job in enumerate(jobs)]
        for run in runs:
            run.at_a_time = len(runs)
        display.start(render.rows(runs[0], *memory) if memory else [])
        shown = [display.of(job.seed) for job in jobs]
        hooked = [
            stack.enter_context(train_loop.HookedRun(run, began, log, one, own, evaluator))
            for run, one in zip(runs, shown, strict=True)
        ]
        lost = train_loop.run_rings(rings, hooked, display.note)
    return runs, {jobs[i].seed: error for i, error in lost.items()}


def _apart(
    jobs: Sequence[Job],
    own: Sequence[Hook],
    display: SeedDisplay,
    memory: tuple[MemoryEstimate, int] | None,
    width: int,
    log: Sequence[str],
) -> tuple[list[Run], dict[int, NotFinite]]:
    """Each on its own ring, some at a time -> the runs, and by seed why some of them are lost."""
    lost: dict[int, NotFinite] = {}
    lock = threading.RLock()
    locked = [_Locked(hook, lock) for hook in own]

    def train(job: Job, stop: StopRequest) -> Run | None:
        if stop.is_set():
            return None
        try:
            began, run = time.monotonic(), job.run()
            stop.listen()  # Ray has its own handler of SIGTERM from its start on
            run.at_a_time = width
            return train_loop.run_training(
                run, memory, locked, display.of(job.seed), began, log, stop
            )
        except NotFinite as error:
            lost[job.seed] = error
            return None
        except BaseException as error:
            saved = stop.is_set() and not stop.hurried
            stop.set()  # the others save what they have
            if isinstance(error, KeyboardInterrupt) and saved:
                return None
            raise

    with stop_on_signals() as stop, ThreadPoolExecutor(width, "rondel seed") as pool:
        if width == 1:
            runs = [train(job, stop) for job in jobs]
        else:
            answers = [pool.submit(train, job, stop) for job in jobs]
            wait(answers)
            runs = [answer.result() for answer in answers]
        if stop.is_set():
            raise stop.error()
    return [run for run in runs if run is not None], lost


def parallel_seeds(setup: Setup, seeds: int) -> int:
    """How many seeds have a ring at the same time: as many as there are cores for.

    A cluster that a run has started for itself ends with it, so on a remote backend it is one.
    """
    if not registry.find(setup.options.on).beside:
        return 1
    copies = sum(piece.copies for piece in setup.plan.pieces)
    return max(1, min(seeds, jax_process.cores() // copies))
