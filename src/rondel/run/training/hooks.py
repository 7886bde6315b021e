"""What happens after the rounds of a run: a list of hooks, wired in `hooks_of` and nowhere else.

Each event passes through all hooks in order. Those after a hook see what it adds to a record, and
a checkpoint is written after whatever it needs on disk.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from rondel.errors import RondelError
from rondel.execution.loop.rounds import Report
from rondel.execution.telemetry.timing import CALLBACK, EVALUATION, OUTPUT
from rondel.run.display.display import Display
from rondel.run.display.round_record import ROW, Goal, RoundRecord
from rondel.run.policy.evaluation import Evaluator
from rondel.run.profiling import diagnosis
from rondel.run.profiling.live import LiveUtilisation
from rondel.run.profiling.run_profile import take_profile, write_profile
from rondel.run.session.run import Run
from rondel.run.storage import loggers, run_folder
from rondel.run.storage.atomic_files import replace_file
from rondel.run.storage.metrics_file import MetricsFile, number, plain, read
from rondel.types import HostWorld

LIVE_SECONDS = 1.0  # between two states of live.json
_ROWS = 1_000  # of metrics.jsonl, about
_DRAWING = threading.Lock()  # runs of one process may end at the same time, and pictures must not


class Hook:
    """Something that happens while a run trains: override what you need.

    >>> class Snapshots(rondel.Hook):  # beside each checkpoint
    ...     def at_checkpoint(self, run):
    ...         run.save("snapshots")
    """

    kind = CALLBACK  # what the run's profile counts its time as
    # The run pauses at the first round at or past each multiple of so many steps, and `after_round`
    # sees the state of that very round. With 1 that is every round. With 0 it never pauses: a fused
    # ring does many rounds in a call, and `run` may be ahead of the record.
    pause_every = 1

    def after_round(self, run: Run, record: RoundRecord) -> Any:
        """A round is done. If this returns True, the run ends here, as at its limits."""

    def at_checkpoint(self, run: Run) -> None:
        """A checkpoint was written, to `run.checkpoint`."""

    def at_end(self, run: Run) -> None:
        """The run is complete and saved, and has its `result`. Not if it failed or was stopped."""


UserHook: TypeAlias = Hook | Callable[[Run, RoundRecord], Any]


class FunctionHook(Hook):
    """A function of (run, record), called after each round."""

    def __init__(self, function: Callable[[Run, RoundRecord], Any]) -> None:
        self._function = function

    def after_round(self, run: Run, record: RoundRecord) -> Any:
        return self._function(run, record)


def as_hooks(given: Sequence[UserHook] | UserHook) -> list[Hook]:
    """The hooks of a user: objects and functions, one or several."""
    several: list[Any] = [*given] if isinstance(given, list | tuple) else [given]
    for one in several:
        if isinstance(one, type) or not (isinstance(one, Hook) or callable(one)):
            raise RondelError(
                f"hooks must be functions of (run, record) or rondel.Hook objects, got {one!r:.40}."
            )
    return [one if isinstance(one, Hook) else FunctionHook(one) for one in several]


def hooks_of(
    run: Run,
    metrics: Metrics,
    clock: Throughput,
    display: Display,
    evaluator: Evaluator | None,
    profiling: Profiling,
    own: Sequence[Hook],
) -> list[Hook]:
    """All hooks of a run in their order: a run that is killed between any two can go on."""
    periodic = [Evaluation(run, evaluator)] if evaluator and run.eval_every else []
    ending = Ending(evaluator, clock, display)
    return [*periodic, metrics, Progress(run, display), ending, profiling, Checkpoint(), *own]


class Evaluation(Hook):
    """Greedy episodes every `run.eval_every` steps, as values of the record."""

    kind = EVALUATION

    def __init__(self, run: Run, evaluator: Evaluator) -> None:
        self.pause_every, self._evaluator = run.eval_every, evaluator
        self._done = run.steps

    def after_round(self, run: Run, record: RoundRecord) -> None:
        if record.steps // self.pause_every > self._done // self.pause_every:
            played = self._evaluator.play(run.ring.acting(), run.setup.task.seed)
            record.metrics["eval_return"] = played.mean
            record.metrics["eval_length"] = float(played.lengths.mean())
        self._done = record.steps


class Metrics(Hook):
    """The rows of metrics.jsonl, and of the outputs that `log` names.

    There are about a thousand, of the same rounds however often a run is resumed, and one for each
    evaluation.
    """

    kind, pause_every = OUTPUT, 0

    def __init__(self, run: Run, log: Sequence[str], say: Callable[[str], None]) -> None:
        assert run.path is not None
        resumed = run.checkpoint is not None
        meta = run_folder.run_metadata(run.setup, run.limits)
        path = run.path / "metrics.jsonl"

        def note(message: str) -> None:
            run.notes.append(message)
            say(message)

        with ExitStack() as opened:
            # first: it is refused if another process writes there
            self._file = opened.enter_context(MetricsFile(path, run.steps if resumed else None))
            run_folder.write_config(run.path, meta | {"at_a_time": run.at_a_time})
            opened.pop_all()
        rows = read(path)
        self.seconds = max((number(row, "seconds") or 0.0 for row in rows[-1:]), default=0.0)
        place = loggers.Place(run.path, meta, rows, resumed)
        self._loggers = loggers.open_loggers(log, place, note) if log else None
        self._every = max(1, run.limits.steps // _ROWS)
        self._done = run.steps or -1  # the first round has a row

    def open(self, stack: ExitStack) -> None:
        """Open the outputs; `stack` closes all."""
        stack.enter_context(self._file)
        self._send = stack.enter_context(self._loggers) if self._loggers else None

    def after_round(self, run: Run, record: RoundRecord) -> None:
        due = record.steps // self._every > self._done // self._every
        if due or "eval_return" in record.metrics:
            written = self._file.write(record.row())
            if self._send:
                self._send(written)
        self._done = record.steps

    def at_checkpoint(self, run: Run) -> None:
        self._file.sync()


class Progress(Hook):
    """What the display shows and live.json holds, both with the newest evaluation."""

    kind, pause_every = OUTPUT, 0

    def __init__(self, run: Run, display: Display) -> None:
        assert run.path is not None
        self._display, self._live = display, LiveFile(run.path, run.setup.task.seed)
        self._evaluated: dict[str, float] = {}

    def open(self, stack: ExitStack) -> None:
        """`stack` writes the last state, whatever the end is."""
        stack.push(self._live.close)

    def after_round(self, run: Run, record: RoundRecord) -> None:
        if "eval_return" in record.metrics:
            found = record.metrics.items()
            self._evaluated = {name: x for name, x in found if name.startswith("eval_")}
        elif self._evaluated:
            record = record._replace(metrics=record.metrics | self._evaluated)
        self._display.update(record)
        self._live.update(record)

    def at_end(self, run: Run) -> None:
        self._live.state = "finished"


class LiveFile:
    """live.json: the newest record, once a second at most; for dashboards, also of other programs.

    It is replaced as a whole, and no disk is waited for. A full one ends no run.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.state = "running"
        self._path, self._seed = folder / "live.json", seed
        self._record: RoundRecord | None = None
        self._due = 0.0  # of the monotonic clock

    def update(self, record: RoundRecord) -> None:
        """Write a record, if the last one is a second old."""
        self._record = record
        if (now := time.monotonic()) >= self._due:
            self._due = now + LIVE_SECONDS
            self._write(record)

    def close(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write the newest record with the last state: finished, stopped or failed."""
        if self.state == "running":
            stopped = kind is None or issubclass(kind, KeyboardInterrupt)
            self.state = "stopped" if stopped else "failed"
        self._write(self._record)

    def _write(self, record: RoundRecord | None) -> None:
        about = {"state": self.state, "updated": round(time.time(), 3), "seed": self._seed}
        with suppress(OSError, ValueError):
            if record is None:  # no round was left to do: the rest is as it was
                live = json.loads(self._path.read_text())
            else:
                values = {name: getattr(record, name) for name in ROW}
                values |= record.goal._asdict() | {"seconds_left": record.seconds_left}
                live = {name: plain(value) for name, value in values.items()}
                live["metrics"] = {name: plain(value) for name, value in record.metrics.items()}
                live["utilisation"] = record.utilisation and record.utilisation.as_json()
            replace_file(self._path, json.dumps(about | live | about) + "\n")


class Ending(Hook):
    """Greedy episodes, the learning curve and the result of a complete run."""

    def __init__(self, evaluator: Evaluator | None, clock: Throughput, display: Display) -> None:
        self._evaluator, self._clock, self._display = evaluator, clock, display

    def at_end(self, run: Run) -> None:
        from rondel.run.analysis import learning_curve

        assert run.path is not None
        if self._evaluator:
            if isinstance(run.setup.task.env, HostWorld):
                self._display.note(f"Playing {run.eval_episodes:,} greedy episodes.")
            run.evaluation = self._evaluator.play(run.ring.acting(), run.setup.task.seed)
        with _DRAWING:
            learning_curve.draw_curve(run.path, f"{run.setup.name} on {run.setup.env_id}")
        run.result = self._clock.result()


class Profiling(Hook):
    """The profile, at each checkpoint."""

    kind, pause_every = OUTPUT, 0

    def __init__(self, run: Run) -> None:
        self._first = run.ring.round
        self.summary = ""  # of where the time went, for the end

    def at_checkpoint(self, run: Run) -> None:
        assert run.path is not None
        if run.ring.round > self._first:
            profile, events = take_profile(run)
            write_profile(run.path, profile, events)
            self.summary = diagnosis.summary(profile, run.path)


class Checkpoint(Hook):
    """Writes the checkpoint, behind all that it needs on disk."""

    kind, pause_every = OUTPUT, 0

    def at_checkpoint(self, run: Run) -> None:
        run.save()


class Throughput:
    """Makes the records of a run's rounds from reports and the clock.

    The speed is unknown until a second call has come back, since the first one compiles. It is
    measured anew once every program has run: a warm-up, which learns nothing, is faster.
    """

    def __init__(self, run: Run, began: float) -> None:
        self._run, self._began = run, began
        goal, until = run.limits.steps, run.limits.until_return
        self._goal = Goal(
            run.setup.name, run.setup.env_id, goal, None if until == float("inf") else until
        )
        self._first: tuple[float, int] | None = None  # time and steps where the speed begins
        self._steady = False  # whether every program had run by then
        self._last = (began, run.steps)  # time and steps when the last call came back

    @cached_property
    def _utilisation(self) -> LiveUtilisation:
        return LiveUtilisation(self._run)

    def records(self, reports: Sequence[Report]) -> Iterator[RoundRecord]:
        """The records of rounds that one call did: each took as long as it has steps."""
        run, (before, done) = self._run, self._last
        now, steps = self._last = time.monotonic(), run.steps
        if self._first is None or (run.ring.base and not self._steady):
            self._first, self._steady = self._last, run.ring.base is not None
        for report in reports:
            part = (report.steps - done) / (steps - done) if steps > done else 1.0
            seconds = round(before + part * (now - before) - self._began, 3)
            clock = (seconds, self.steps_per_second, self._goal, self._steady)
            yield RoundRecord(*report, *clock, self._utilisation.look())

    @property
    def steps_per_second(self) -> float | None:
        """Steps per second; None while that is unknown."""
        if self._first is None or self._last[0] <= self._first[0]:
            return None
        seconds, steps = (now - first for now, first in zip(self._last, self._first, strict=True))
        return round(steps / seconds, 1) or None

    def result(self) -> dict[str, Any]:
        """What `--json` prints."""
        run = self._run
        return {
            "algorithm": run.setup.name,
            "env": run.setup.env_id,
            "seed": run.setup.task.seed,
            "steps": run.steps,
            "episodes": run.episodes,
            "return_mean": run.return_mean,
            "eval_return": run.evaluation.mean if run.evaluation else None,
            "steps_per_second": self.steps_per_second,
            "seconds": round(time.monotonic() - self._began, 3),
            "path": str(run.path),
        }
