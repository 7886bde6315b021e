"""Outputs for the rows of metrics.jsonl: TensorBoard's event files, Weights & Biases.

metrics.jsonl is the reference. A resumed run first brings each output up to it, so that no step is
there twice or missing. An output that fails during a run is dropped, and the run goes on.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from rondel.errors import RondelError
from rondel.run.storage.atomic_files import replace_file
from rondel.run.storage.metrics_file import number
from rondel.run.storage.run_folder import title

Row: TypeAlias = Mapping[str, Any]

_WANDB_SECONDS = 300.0  # for W&B to send the rest at the end of a run
_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}


class Place(NamedTuple):
    """The run that an output is for: its folder, settings, and the rows written so far."""

    folder: Path
    meta: dict[str, Any]
    rows: Sequence[Row]
    resumed: bool


class Output(Protocol):
    def write(self, row: Row) -> None:
        """Append a row."""

    def close(self, failed: bool) -> None:
        """Flush and close."""


def names_in(log: str | Sequence[str]) -> tuple[str, ...]:
    """The names of outputs, each once; refuses unknown ones and missing packages."""
    names = tuple(dict.fromkeys([log] if isinstance(log, str) else log))
    for name in names:
        if name not in _PACKAGES:
            raise RondelError(f"log must be {' or '.join(_PACKAGES)}, or both, got {name!r}.")
        if find_spec(_PACKAGES[name]) is None:
            raise RondelError(
                f"log={name!r} needs the package {_PACKAGES[name]}. Use "
                f'pip install "rondel[{name}]".'
            )
    return names


@contextmanager
def open_loggers(
    names: Sequence[str], place: Place, say: Callable[[str], None]
) -> Iterator[Callable[[Row], None]]:
    """A function that writes a row to all outputs; `say` gets one message for each that fails."""
    outputs: dict[str, Output] = {}
    broken: list[Output] = []

    def lost(name: str, when: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        say(f"Output to {name} failed {when} ({reason}). The run continues without it.")

    def each(do: Callable[[Output], None], when: str) -> None:
        for name, output in list(outputs.items()):
            try:
                do(output)
            except Exception as error:  # any: training matters more
                broken.append(outputs.pop(name))
                lost(name, when, error)

    failed = True
    try:
        for name in names:
            try:
                outputs[name] = _OUTPUTS[name](place)
            except RondelError:
                raise  # nothing has been trained yet
            except Exception as error:
                lost(name, "at its start", error)
        yield lambda row: each(lambda output: output.write(row), f"at step {row['steps']:,}")
        failed = False
    except KeyboardInterrupt:
        failed = False
        raise
    finally:
        each(lambda output: output.close(failed), "at its end")
        for output in broken:
            with suppress(Exception):  # its failure was reported
                output.close(failed)


def scalars(row: Row) -> dict[str, float]:
    """The numbers of a row by name, without the steps."""
    found = {name: number(row, name) for name in row if name != "steps"}
    return {name: value for name, value in found.items() if value is not None}


class TensorBoard:
    """Event files in the folder `tensorboard` of a run, for `tensorboard --logdir`.

    A resumed run writes a new file. Its first event tells TensorBoard to forget the old one.
    """

    def __init__(self, place: Place) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2

        self._event = event_pb2.Event
        last = place.rows[-1] if place.rows else {}
        self._began = time.time() - (number(last, "seconds") or 0.0)
        folder = place.folder / "tensorboard"
        try:
            folder.mkdir(exist_ok=True)
            for old in folder.glob("events.out.tfevents.*"):
                old.unlink()
            # not SummaryWriter: its thread would swallow the error of a full disk
            self._writer = EventsWriter(str(folder / "events"))
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.write_event(self._event(wall_time=self._began, step=0, session_log=start))
            for row in place.rows:
                self._put(row)
            self._writer.flush()
        except OSError as error:
            raise RondelError(
                f"{folder} can't be written: {error.strerror}. Free space, make it writable, or "
                "leave out log='tensorboard'."
            ) from error

    def write(self, row: Row) -> None:
        self._put(row)
        self._writer.flush()

    def close(self, failed: bool) -> None:
        del failed
        self._writer.close()

    def _put(self, row: Row) -> None:
        values = [{"tag": name, "simple_value": value} for name, value in scalars(row).items()]
        when = self._began + (number(row, "seconds") or 0.0)
        steps = int(number(row, "steps") or 0)
        self._writer.write_event(self._event(wall_time=when, step=steps, summary={"value": values}))


class WeightsAndBiases:
    """A run of Weights & Biases, resumed under its id when this run is resumed.

    Its project is WANDB_PROJECT, by default `rondel`. Other variables of wandb work too, such as
    WANDB_MODE=offline. wandb.json in the run's folder holds the id and the last step sent.
    """

    def __init__(self, place: Place) -> None:
        import wandb

        self._note = place.folder / "wandb.json"
        known = _noted(self._note) if place.resumed else None
        self._id, self._sent = known or (uuid.uuid4().hex[:12], -1)
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT") or "rondel",
                name=title(place.folder),
                id=self._id,
                resume="allow",
                reinit="create_new",  # beside those of other seeds
                dir=place.folder,
                config=place.meta,
                # wandb must not capture what this run prints
                settings=wandb.Settings(
                    console="off",
                    silent=True,
                    finish_timeout=_WANDB_SECONDS,
                    finish_timeout_raises=True,
                ),
            )
        except Exception as error:
            raise RondelError(
                f"Weights & Biases failed to start ({type(error).__name__}: {error}). Log in with "
                "`wandb login`, or set WANDB_MODE=offline to send later with `wandb sync`, or "
                "leave out log='wandb'."
            ) from error
        try:
            for row in place.rows:
                self.write(row)
        except BaseException:
            with suppress(Exception):
                self.close(failed=True)
            raise

    def write(self, row: Row) -> None:
        steps = int(number(row, "steps") or 0)
        if steps <= self._sent:
            return  # sent before the run was stopped
        self._run.log(scalars(row), step=steps)
        self._sent = steps
        replace_file(self._note, json.dumps({"id": self._id, "steps": steps}) + "\n")

    def close(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


_OUTPUTS: dict[str, Callable[[Place], Output]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
}


def _noted(path: Path) -> tuple[str, int] | None:
    """The id and the last step in wandb.json; None if that is missing or damaged."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(path.read_text())
        sent = number(found, "steps") if isinstance(found, dict) else None
        if sent is not None and str(found.get("id")).isalnum():
            return str(found["id"]), int(sent)
    return None
