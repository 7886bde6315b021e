"""A run from its first round to its last: rows, checkpoints, display, and what is left at its end.

In this order, so that a kill at any instant leaves a run that can go on: rows, checkpoint,
evaluation, curve.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from rondel.envs.guard.crash_report import forbid_exit_zero
from rondel.execution.backends import registry
from rondel.execution.loop.rounds import Report
from rondel.execution.loop.sync_loop import is_finished
from rondel.execution.telemetry.timing import CALLBACK, OUTPUT
from rondel.run.analysis import learning_curve
from rondel.run.display.display import Display, Progress
from rondel.run.preflight import render
from rondel.run.preflight.memory_estimate import MemoryEstimate, estimate
from rondel.run.profiling import diagnosis, profile_files
from rondel.run.profiling.run_profile import Profile, take_profile
from rondel.run.session.run import Run
from rondel.run.setup import jax_process
from rondel.run.setup.prepare import Setup
from rondel.run.storage import loggers, run_folder
from rondel.run.storage.metrics_file import MetricsFile, number, read
from rondel.run.training.signals import StopRequest, end_on_sigterm, stop_on_signals
from rondel.run.training.throughput import Throughput
from rondel.types import HostWorld

Callback = Callable[[Run, Report], Any]
CHECKPOINT_SECONDS = 60.0
_AT_ONCE = 0.05  # seconds
_ROWS = 1_000  # of metrics.jsonl, about
EXITED_EARLY = (
    "os._exit was called in this process, by an environment or a library. The run is not at its "
    "end; `rondel resume` goes on from its last checkpoint."
)
_ENDING = threading.Lock()  # runs of one process may end at the same time, and pictures must not
_log = logging.getLogger("rondel")


def estimate_memory(
    setup: Setup, rings: int = 1, room: int | None = None
) -> tuple[MemoryEstimate, int]:
    """What so many runs at a time will take of memory, and what is free; it warns of too little.

    `room` is what was free before a part of it was taken, if some was.

    It traces what will be compiled, which takes a moment: only where someone is shown it.
    """
    cost, room = estimate(setup).times(rings), jax_process.free_memory() if room is None else room
    here = not (registry.find(setup.options.on).remote and setup.options.address)
    if here and (warning := cost.warning(room)):
        _log.warning("%s", warning)
    return cost, room


def resume_command(path: Path, log: Sequence[str]) -> str:
    """The command that goes on with what was stopped."""
    return f"`rondel resume {path}{''.join(f' --log {name}' for name in log)}`"


class RunWriter:
    """What a run writes into its folder, from the checkpoint on that was `found`.

    Within its `with` its rows also go to the outputs that `log` names; `say` is told of trouble.
    """

    def __init__(
        self,
        run: Run,
        began: float,
        log: Sequence[str],
        say: Callable[[str], None],
        found: Path | None = None,
    ) -> None:
        assert run.path is not None
        self.run, self.path = run, run.path
        self.found = found  # the newest checkpoint
        self.profile: Profile | None = None
        meta = run_folder.run_metadata(
            run.setup, run.limits.steps, run.limits.until_return, run.machine
        )
        metrics = self.path / "metrics.jsonl"
        with ExitStack() as opened:
            # first: it is refused if another process writes there
            self._recorder = MetricsFile(metrics, run.steps if found else None)
            opened.callback(self._recorder.close)
            run_folder.write_config(self.path, meta | {"at_a_time": run.at_a_time})
            opened.pop_all()
        rows = read(metrics)
        before = max((number(row, "seconds") or 0.0 for row in rows[-1:]), default=0.0)
        place = loggers.Place(self.path, meta, rows, found is not None)
        self._outputs = loggers.open_loggers(log, place, self._note)
        self._say = say
        self._stack = ExitStack()
        self.clock = Throughput(run, began - before)
        self._every = max(1, run.limits.steps // _ROWS)
        self._last = run.steps or -1  # the first round has a row
        self._first = run.ring.round
        self._saved = run.ring.round if found else None  # the round of the newest checkpoint

    def _note(self, message: str) -> None:
        self.run.notes.append(message)
        self._say(message)

    def take(self, report: Report) -> Progress:
        """A row of some rounds: the same ones, however often resumed."""
        self.clock.tick()
        if report.steps // self._every > self._last // self._every:
            self._send(self._recorder.write(self.clock.row(report)))
        self._last = report.steps
        return self.clock.progress(report)

    def save(self) -> Path:
        """A checkpoint and a profile of the run, unless it is where the newest one is."""
        run = self.run
        if self.found is None or run.ring.round != self._saved:
            self._recorder.sync()
            if run.ring.round > self._first:
                self.profile, events = take_profile(run)
                profile_files.write(self.path, self.profile, events)
            self.found, self._saved = run.save(), run.ring.round
        return self.found

    def finish(self) -> None:
        """Evaluate, draw, and say what it has come to."""
        run = self.run
        evaluation = run.evaluate(run.eval_episodes) if run.eval_episodes else None
        with _ENDING:
            learning_curve.draw_curve(self.path, f"{run.setup.name} on {run.setup.env_id}")
        run.result = self.clock.result(evaluation)

    def __enter__(self) -> RunWriter:
        with ExitStack() as stack:  # what has begun ends if the next one fails to begin
            stack.enter_context(self._recorder)
            self._send = stack.enter_context(self._outputs)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.__exit__(*raised)

    def give_up(self, error: Exception) -> None:
        """End it here, for what went wrong with this run alone."""
        self._stack.__exit__(type(error), error, error.__traceback__)


class CompileNotice:
    """Says before which rounds programs are compiled, and after them how long it took.

    That looks like a hang to whoever is not told. What acts is compiled for the first round here,
    and what learns too where it is one program, else for the first round that draws.
    """

    def __init__(self, run: Run, say: Callable[[str], None]) -> None:
        self._run, self._say = run, say
        self._first, self._name, self._began = run.ring.round, "", 0.0

    def before(self) -> None:
        """A round may be next."""
        ring = self._run.ring
        if ring.round == self._first:
            name = "the first round"
        elif (
            ring.round == ring.task.algorithm.memory.warmup_rounds
            and not ring.lowering.learns_in_one_program
        ):
            name = "the first round that learns"
        else:
            return
        if not is_finished(ring, self._run.limits):
            self._say(f"compiling for {name}, which takes a while")
            self._name, self._began = name, time.monotonic()

    def after(self) -> None:
        """A round is done."""
        if self._name:
            seconds = time.monotonic() - self._began
            took = f"after {seconds:.1f} s" if seconds >= _AT_ONCE else "at once"
            self._say(f"compiled, and {self._name} done, {took}")
            self._name = ""


def run_training(
    run: Run,
    room: tuple[MemoryEstimate, int] | None,
    callbacks: Sequence[Callback],
    display: Display,
    began: float,
    log: Sequence[str],
    found: Path | None = None,
    stop: StopRequest | None = None,
) -> Run:
    """Run to the limits, from the checkpoint that was `found`; keep folder and display up to date.

    By Ctrl-C or SIGTERM, or where these are for another to obey by `stop`, it ends after a round.
    """
    with forbid_exit_zero(EXITED_EARLY) if stop is None else nullcontext(), run:
        book = RunWriter(run, began, log, display.note, found)
        display.start(render.rows(run, *room) if room else [])
        ending = failed = f"The run failed; its folder is {run.path}."
        try:
            with book:
                with stop_on_signals() if stop is None else nullcontext(stop) as asked:
                    _rounds(book, callbacks, display, asked)
                    where = book.save()
                ending = f"Stopped; go on with {resume_command(book.path, log)}."
                if asked.is_set():
                    raise asked.error()
                with end_on_sigterm() if stop is None else nullcontext():
                    if run.eval_episodes and isinstance(run.setup.task.env, HostWorld):
                        display.note(f"playing {run.eval_episodes:,} greedy episodes")
                    book.finish()
                    ending = render.ending(run, where)
                    if book.profile:
                        ending += f"\n{diagnosis.summary(book.profile, book.path)}"
        except KeyboardInterrupt:
            if ending == failed:  # a second Ctrl-C, which does not wait
                ending = f"Stopped at once, without saving; its folder is {run.path}."
            raise
        finally:
            display.stop(ending)
    return run


def _rounds(
    log: RunWriter, callbacks: Sequence[Callback], display: Display, stop: StopRequest
) -> None:
    """All rounds up to the limits or the wish to stop, shown and written down."""
    last, run = time.monotonic(), log.run
    meter, compiling = run.ring.meter, CompileNotice(run, display.note)
    compiling.before()
    for report in run.rounds(at_a_time=1 if callbacks else None):
        compiling.after()
        display.update(log.take(report))
        meter.mark("driver", OUTPUT)
        answers = [callback(run, report) for callback in callbacks]
        if report.round + 1 < run.ring.round:
            continue  # saved now, the run would go on behind rows that are not written yet
        if any(answers) or stop.is_set():
            break
        if time.monotonic() - last > CHECKPOINT_SECONDS:
            meter.mark("driver", CALLBACK)
            log.save()
            meter.mark("driver", OUTPUT)
            last = time.monotonic()
        compiling.before()
