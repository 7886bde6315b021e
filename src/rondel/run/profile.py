"""Where the time of a run goes.

Every copy of a piece marks what it has done (`execution.meter`); here the copies of a piece are put
together, as shares of the time since all was compiled. `diagnosis` reads them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from rondel.errors import RondelError
from rondel.execution.meter import STARTING, WAITING, Glance, Told
from rondel.execution.ring import Ring
from rondel.run.fields import fits
from rondel.run.files import put
from rondel.run.summary import size

FILE, TRACE = "profile.json", "trace.json"
_LITTLE = 0.005  # shares below are not shown
IN_TURN = "all, in turn"  # the name of pieces that share a thread


class Share(NamedTuple):
    """What part of a copy's time one kind of thing took in one stage."""

    stage: str
    kind: str
    part: float
    seconds: float  # of one copy, the mean
    times: int  # of all copies
    bytes: int

    @property
    def waits(self) -> bool:
        return self.kind in WAITING


class Piece(NamedTuple):
    """The copies of a piece of the plan, or all pieces where they share a thread."""

    name: str
    copies: int
    shares: tuple[Share, ...]

    @property
    def busy(self) -> float:
        """The part of its time in which it does not wait for others."""
        return sum(share.part for share in self.shares if not share.waits)

    def part(self, kind: str) -> float:
        return sum(share.part for share in self.shares if share.kind == kind)


@dataclass(frozen=True)
class Profile:
    """Where a run's time went."""

    plan: str
    on: str | None
    env: str
    lanes: int
    lag: int
    free: bool
    most_lag: int | None  # that its algorithm tolerates; None: any
    seconds: float  # since all was compiled
    starting: float  # seconds before that
    pieces: tuple[Piece, ...]
    apart: dict[str, float] | None = None  # shares of stages in one program, measured apart
    more_lanes: float | None = None  # how many times as long a round of four times the lanes takes
    one_step: float | None = None  # seconds of a gradient and its update, measured apart

    def table(self) -> str:
        """Shares by piece, stage and kind: 76 columns at the most."""
        lines = [f"{'piece':20}{'stage':10}{'what':18}{'share':>6}{'times':>11}{'bytes':>11}"]
        for piece in self.pieces:
            name = piece.name if piece.copies == 1 else f"{piece.name} x {piece.copies}"
            for share in sorted(piece.shares, key=lambda share: -share.part):
                if share.part < _LITTLE:
                    continue
                what = f"waits for {share.kind}" if share.waits else share.kind
                moved = size(share.bytes) if share.bytes else ""
                lines.append(
                    f"{name[:19]:20}{share.stage:10}{what:18}{share.part:6.1%}"
                    f"{share.times:11,}{moved:>11}"
                )
                name = ""
        if self.apart:
            told = ", ".join(f"{stage} {part:.0%}" for stage, part in self.apart.items())
            lines.append(f"measured apart: {told}")
        return "\n".join(lines)


def taken(ring: Ring, env: str, on: str | None) -> tuple[Profile, list[dict[str, Any]]]:
    """The profile of a run so far, and the newest events of all copies for a trace."""
    every = ring.metered()
    shared = len(ring.plan.pieces) > 1 and on == "inline"
    rows: dict[str, tuple[str, Told]] = {}
    for name, one in chain(*every):
        rows.setdefault(one.who, (IN_TURN if shared else name, one))
    events = [traced(name, i, one) for i, (name, one) in enumerate(rows.values())]
    told = [[one for _, one in piece] for piece in every]
    return put_together(ring, env, on, told), list(chain(*events))


def put_together(
    ring: Ring, env: str, on: str | None, told: Sequence[Sequence[Told | Glance]]
) -> Profile:
    """The profile of what the copies of each piece say; those who share a thread say the same."""
    plan, task = ring.plan, ring.task
    shared = len(plan.pieces) > 1 and on == "inline"
    pieces: list[Piece] = []
    starting = seconds = 0.0
    seen: set[str] = set()
    for piece, every in zip(plan.pieces, told, strict=True):
        new = {one.who: one for one in every if one.who not in seen}
        seen.update(new)
        if new:
            pieces.append(_piece(IN_TURN if shared else piece.name, list(new.values())))
        for one in new.values():
            first = sum(spent.seconds for spent in one.spent if spent.kind == STARTING)
            starting, seconds = max(starting, first), max(seconds, one.seconds - first)
    where = (str(plan), on, env, task.lanes, plan.lag, plan.free, task.algorithm.max_lag)
    return Profile(*where, seconds, starting, tuple(pieces))


def traced(name: str, number: int, told: Told) -> list[dict[str, Any]]:
    """A copy's newest events as Chrome and Perfetto read them: a row of its own, microseconds."""
    row = {"pid": 0, "tid": number}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "args": {"name": name}, **row}
    ]
    for event in told.events:
        word = f"waits for {event.kind}" if event.kind in WAITING else event.kind
        times = {"ts": event.began * 1e6, "dur": (event.ended - event.began) * 1e6}
        events.append({"ph": "X", "name": f"{event.stage}: {word}", **times, **row})
    return events


def _piece(name: str, told: Sequence[Told | Glance]) -> Piece:
    copies = len(told)
    sums: dict[tuple[str, str], list[Any]] = {}
    for one in told:
        for spent in one.spent:
            if spent.kind != STARTING:
                mine = sums.setdefault((spent.stage, spent.kind), [0.0, 0, 0])
                mine[0] += spent.seconds
                mine[1] += spent.times
                mine[2] += spent.bytes
    total = sum(seconds for seconds, _, _ in sums.values()) or 1.0
    shares = [
        Share(stage, kind, seconds / total, seconds / copies, times, moved)
        for (stage, kind), (seconds, times, moved) in sums.items()
    ]
    return Piece(name, copies, tuple(shares))


def write(folder: Path, profile: Profile, events: list[dict[str, Any]] | None = None) -> None:
    """Beside the run's other files. It is for people: a disk that is full does not end a run."""
    files = {FILE: json.dumps(asdict(profile), indent=1)}
    if events is not None:
        files[TRACE] = json.dumps({"traceEvents": events})
    for name, text in files.items():
        with suppress(OSError):
            put(folder / name, text + "\n")


def read(folder: Path) -> Profile:
    """What `write` wrote; anyone may have written it."""
    path = folder / FILE
    try:
        about = json.loads(path.read_text())
        pieces = tuple(
            Piece(name, copies, tuple(_typed(Share, Share(*share)) for share in shares))
            for name, copies, shares in about.pop("pieces")
        )
        about = Profile(**about, pieces=tuple(_typed(Piece, piece) for piece in pieces))
        return _typed(Profile, about)
    except OSError as error:
        raise RondelError(
            f"{path} can't be read: {error.strerror}. A run writes it at its end, and at each "
            "checkpoint."
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise RondelError(f"{path} is no profile of a run of Rondel.") from None


def _typed(kind: Any, record: Any) -> Any:
    """The record, if its fields are of the types that they should be."""
    for name, hint in get_type_hints(kind).items():
        value = getattr(record, name)
        if not fits(value, hint) or (name in ("pieces", "apart") and value in ((), {})):
            raise ValueError(name)
        if isinstance(value, dict) and not all(fits(x, float) for x in value.values()):
            raise ValueError(name)
    return record
