"""metrics.jsonl: the metrics of a run, a JSON object per line.

Every row has round, steps, episodes, seconds, steps_per_second, return_mean and length_mean, and
the algorithm's own metrics by name ("loss/policy", "entropy"). Numbers that are not finite are
null, which every reader of JSON accepts. So is an unknown speed: before the second call has
returned, and in the row in which the last program was compiled, from which it is measured anew.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from rondel.errors import RondelError
from rondel.run.storage.atomic_files import explain_failure

_HUGE = 1e300  # larger numbers can't be drawn
_LONGEST = 1 << 20  # bytes of a line; our rows are far shorter


class MetricsFile:
    """Writes rows to a run's metrics.jsonl; each is in the file when `write` returns.

    A resumed run gives `resume_at`, the steps of its checkpoint: rows beyond are dropped, since the
    run will write them again, and so is a line that a kill cut in half. Only one process at a time
    can write, else rows would mix.
    """

    def __init__(self, path: Path, resume_at: int | None = None) -> None:
        self._path = Path(path)
        with explain_failure(f"The metrics {path}"), ExitStack() as opened:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # unbuffered: what could not be written must not come back when the file is closed
            self._file = opened.enter_context(_regular(self._path).open("ab", buffering=0))
            self._claim()
            self._end = 0 if resume_at is None else _length_until(self._path, resume_at)
            self._file.truncate(self._end)
            opened.pop_all()

    def _claim(self) -> None:
        """Lock the file; the kernel unlocks it when the process ends."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RondelError(
                f"Another process is still writing to the run in {self._path.parent}: wait until "
                "it ends, or choose another folder."
            ) from None
        except OSError:  # some network file systems have no locks
            pass

    def write(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Write a row, and return it as it is in the file, in plain numbers."""
        written = {name: plain(value) for name, value in row.items()}
        line = json.dumps(written) + "\n"
        left = memoryview(line.encode())
        with explain_failure(f"The metrics {self._path}"):
            try:
                while left:
                    left = left[self._file.write(left) :]
            except OSError:
                with suppress(OSError):  # half of it may have fitted on the disk
                    self._file.truncate(self._end)
                raise
        self._end += len(line)
        return written

    def sync(self) -> None:
        """Bring the rows to the disk, before the checkpoint that follows them."""
        with suppress(OSError):  # it may not be on a disk
            os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> MetricsFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path) -> list[dict[str, Any]]:
    """Read all rows, oldest first, without a line that was cut in half; none without a file."""
    try:
        return [row for row, _ in _rows(Path(path))]
    except OSError as error:
        raise RondelError(f"{path} can't be read: {error.strerror}.") from error


def number(row: Mapping[str, Any], name: str) -> float | None:
    """A value of a row, if it is a finite number: anyone may have written the file."""
    value = row.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < _HUGE else None


def columns(rows: Iterable[Mapping[str, Any]], *names: str) -> np.ndarray:
    """[names, n]: these values of the rows that have all of them."""
    found = [[number(row, name) for name in names] for row in rows]
    known = [values for values in found if None not in values]
    return np.array(known, float).reshape(-1, len(names)).T


def _rows(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Each whole row with the place in the file where it ends."""
    if not path.exists():
        return
    end = 0
    with _regular(path).open("rb") as file:
        for line in iter(lambda: file.readline(_LONGEST), b""):
            end += len(line)
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if line.endswith(b"\n") and isinstance(row, dict):
                yield row, end


def _regular(path: Path) -> Path:
    # opening a pipe would block
    if path.exists() and not path.is_file():
        raise RondelError(f"{path} must be a regular file: move it away.")
    return path


def _length_until(path: Path, steps: int) -> int:
    kept = takewhile(lambda found: (number(found[0], "steps") or 0) <= steps, _rows(path))
    return max((end for _, end in kept), default=0)


def plain(value: Any) -> Any:
    """A value for JSON: a Python scalar for one of NumPy or JAX, None if it is not finite."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
