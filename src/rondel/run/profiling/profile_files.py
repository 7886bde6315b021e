"""profile.json and trace.json in a run's folder."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

from rondel.errors import RondelError
from rondel.run.profiling.run_profile import CopyTimes, Piece, Profile, RunFacts, TimeShare
from rondel.run.setup.options import fits
from rondel.run.storage.atomic_files import replace_file

FILE, TRACE = "profile.json", "trace.json"
_PARTS = ("part", "lost")  # of one; sums and clocks are rounded
_MOST = 1.001


def write(folder: Path, profile: Profile, events: list[dict[str, Any]] | None = None) -> None:
    """Write beside the run's other files. A full disk does not end a run for that."""
    facts = {k: v for k, v in asdict(profile).items() if k != "advice"}
    files = {FILE: json.dumps(facts, indent=1)}
    if events is not None:
        files[TRACE] = json.dumps({"traceEvents": events})
    for name, text in files.items():
        with suppress(OSError):
            replace_file(folder / name, text + "\n")


def read(folder: Path) -> Profile:
    """Read what `write` wrote, and refuse what it would not have written."""
    path = folder / FILE
    try:
        values = json.loads(path.read_text())
        pieces = tuple(_piece(*piece) for piece in values.pop("pieces"))
        driver = values.pop("driver")
        own = None if driver is None else _piece(*driver)
        facts = _checked(RunFacts(*values.pop("facts")))
        return _checked(Profile(**values, facts=facts, pieces=pieces, driver=own))
    except OSError as error:
        raise RondelError(
            f"{path} can't be read: {error.strerror}. A run writes it at its end and with each "
            "checkpoint."
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise RondelError(
            f"{path} is not a profile of this version of Rondel. `rondel resume` writes a new one."
        ) from None


def _piece(name: Any, copies: Any, shares: Any, each: Any) -> Piece:
    if copies == 0:
        raise ValueError("copies")
    owns = tuple(_checked(CopyTimes(own, _all(theirs))) for own, theirs in each)
    return _checked(Piece(name, copies, _all(shares), owns))


def _all(shares: Any) -> tuple[TimeShare, ...]:
    return tuple(_checked(TimeShare(*share)) for share in shares)


def _checked(record: Any) -> Any:
    """Return the record if its fields have their types, and can be printed and computed with."""
    for name, hint in get_type_hints(type(record)).items():
        value = getattr(record, name)
        inside = list(value.values()) if isinstance(value, dict) else [value]
        empty = name in ("pieces", "stages") and value in ((), {})
        if empty or not fits(value, hint) or not all(_is_sound(name, one) for one in inside):
            raise ValueError(name)
    return record


def _is_sound(name: str, value: Any) -> bool:
    if isinstance(value, str):
        return value.isprintable() and name != "stages"
    most = _MOST if name in _PARTS else math.inf
    return not isinstance(value, int | float) or (0 <= value <= most and value < math.inf)
