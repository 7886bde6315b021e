"""A run's profile in its folder: as JSON, and its newest events as a trace."""

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
_PARTS = ("part", "computed", "lost")  # of one; sums and clocks are rounded
_MOST = 1.001


def write(folder: Path, profile: Profile, events: list[dict[str, Any]] | None = None) -> None:
    """Beside the run's other files. It is for people: a disk that is full does not end a run."""
    files = {FILE: json.dumps(asdict(profile), indent=1)}
    if events is not None:
        files[TRACE] = json.dumps({"traceEvents": events})
    for name, text in files.items():
        with suppress(OSError):
            replace_file(folder / name, text + "\n")


def read(folder: Path) -> Profile:
    """What `write` wrote; anyone may have written it."""
    path = folder / FILE
    try:
        about = json.loads(path.read_text())
        pieces = tuple(_piece(*piece) for piece in about.pop("pieces"))
        driver = about.pop("driver")
        own = None if driver is None else _piece(*driver)
        facts = _checked(RunFacts(*about.pop("about")))
        return _checked(Profile(**about, about=facts, pieces=pieces, driver=own))
    except OSError as error:
        raise RondelError(
            f"{path} can't be read: {error.strerror}. A run writes it at its end, and at each "
            "checkpoint."
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise RondelError(
            f"{path} is no profile of a run of this Rondel. A run writes one at its end, and at "
            "each checkpoint: `rondel resume` would."
        ) from None


def _piece(name: Any, copies: Any, shares: Any, each: Any) -> Piece:
    if copies == 0:
        raise ValueError("copies")
    owns = tuple(_checked(CopyTimes(own, _all(theirs), part)) for own, theirs, part in each)
    return _checked(Piece(name, copies, _all(shares), owns))


def _all(shares: Any) -> tuple[TimeShare, ...]:
    return tuple(_checked(TimeShare(*share)) for share in shares)


def _checked(record: Any) -> Any:
    """The record, if its fields are of the types that they should be, and can be shown."""
    for name, hint in get_type_hints(type(record)).items():
        value = getattr(record, name)
        if not fits(value, hint) or (name in ("pieces", "apart") and value in ((), {})):
            raise ValueError(name)
        inside = value.values() if isinstance(value, dict) else ()
        if not all(fits(x, str if name == "remedies" else float) for x in inside):
            raise ValueError(name)
        for one in (value, *inside):
            if not _can_be_shown(one) or (name in _PARTS and one is not None and one > _MOST):
                raise ValueError(name)
    return record


def _can_be_shown(value: Any) -> bool:
    if isinstance(value, str):
        return value.isprintable()
    return not isinstance(value, int | float) or (math.isfinite(value) and value >= 0)
