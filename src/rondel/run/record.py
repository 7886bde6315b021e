"""metrics.jsonl: what a run measured, one JSON object a line, a line a report.

Every row has round, steps, episodes, seconds, steps_per_second, return_mean and length_mean, and
the algorithm's own metrics by name ("loss/policy", "entropy"). A number that isn't finite is null,
which every reader of JSON takes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Any

from rondel.errors import RondelError


class Recorder:
    """Writes rows to a run's metrics.jsonl; each is in the file when `write` returns.

    A run that goes on from a checkpoint gives `resume_at`, the steps that it had done: rows beyond
    are dropped, for the run will write them again, and so is a line that a kill cut in half.
    """

    def __init__(self, path: Path, resume_at: int | None = None) -> None:
        self._path = Path(path)
        kept = 0 if resume_at is None else _length_until(self._path, resume_at)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab")
            self._file.truncate(kept)
        except OSError as error:
            raise self._refusal(error) from error

    def write(self, row: Mapping[str, Any]) -> None:
        line = json.dumps({name: _plain(value) for name, value in row.items()}) + "\n"
        try:
            self._file.write(line.encode())
            self._file.flush()
        except OSError as error:
            raise self._refusal(error) from error

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _refusal(self, error: OSError) -> RondelError:
        return RondelError(
            f"Writing the metrics to {self._path} failed: {error.strerror}. Make space there or "
            "make the folder writable, or choose another folder for the run."
        )


def read(path: Path) -> list[dict[str, Any]]:
    """All rows, oldest first; none if there is no file. A line cut in half is left out."""
    return [row for row, _ in _rows(Path(path))]


def _rows(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Each whole row with the place in the file where it ends."""
    if not path.exists():
        return
    end = 0
    with path.open("rb") as file:
        for line in file:
            end += len(line)
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if line.endswith(b"\n") and isinstance(row, dict):
                yield row, end


def _length_until(path: Path, steps: int) -> int:
    kept = takewhile(lambda row_end: row_end[0].get("steps", 0) <= steps, _rows(path))
    return max((end for _, end in kept), default=0)


def _plain(value: Any) -> Any:
    """What JSON can hold: NumPy and JAX scalars become Python's, what isn't finite becomes None."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
