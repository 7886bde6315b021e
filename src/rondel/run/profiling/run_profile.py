"""Where the time of a run goes: shares by piece, stage and kind, since all was compiled.

Every copy of a piece marks what it has done (`execution.telemetry.timing`), and so does the driver.
Here these marks are put together, written beside the run's other files (profile.json, trace.json)
and read again; `diagnosis` names the bottleneck.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, get_type_hints

from rondel.errors import RondelError
from rondel.execution.backends.lowering import Kind
from rondel.execution.backends.protocol import Restarts
from rondel.execution.loop.ring import Ring
from rondel.execution.stages.task import bytes_of
from rondel.execution.telemetry.timing import (
    STARTING,
    WAITING,
    TimeBucket,
    TimingReport,
    TimingSummary,
    since,
)
from rondel.formatting import size
from rondel.run.session.run import Run
from rondel.run.setup import jax_process
from rondel.run.setup.options import fits
from rondel.run.setup.prepare import Setup
from rondel.run.storage.atomic_files import replace_file
from rondel.spaces import zeros
from rondel.types import Env

FILE, TRACE = "profile.json", "trace.json"
_LITTLE = 0.005  # shares below are not shown
_PASSES = ("epochs", "updates", "updates_per_step")  # how often an algorithm learns from its data
_PARTS = ("part", "lost")  # of one; sums and clocks are rounded
_MOST = 1.001
IN_TURN = "all, in turn"  # the name of pieces that share a thread
Timings: TypeAlias = TimingReport | TimingSummary


class TimeShare(NamedTuple):
    """The share of a copy's time that a stage spent on one kind of work."""

    stage: str
    kind: str
    part: float
    seconds: float  # of one copy, the mean
    times: int  # of all copies
    bytes: int

    @property
    def waits(self) -> bool:
        return self.kind in WAITING


class CopyTimes(NamedTuple):
    """What one copy did."""

    name: str
    shares: tuple[TimeShare, ...]

    @property
    def busy(self) -> float:
        return _busy(self.shares)


class Piece(NamedTuple):
    """The copies of a piece of the plan, or all pieces where they share a thread."""

    name: str
    copies: int
    shares: tuple[TimeShare, ...]  # of all copies together
    each: tuple[CopyTimes, ...]

    @property
    def title(self) -> str:
        return self.name if self.copies == 1 else f"{self.name}, {self.copies} copies"

    @property
    def busy(self) -> float:
        """The part of its time in which it does not wait for others."""
        return _busy(self.shares)

    @property
    def busiest(self) -> CopyTimes:
        """The copy that the others wait for, if they do."""
        alone = CopyTimes(self.name, self.shares)
        return max(self.each, key=lambda own: own.busy, default=alone)

    def part(self, kind: str) -> float:
        return sum(share.part for share in self.shares if share.kind == kind)


class RunFacts(NamedTuple):
    """What the bottleneck of a run, and advice on it, depend on."""

    plan: str
    on: str | None
    env: str
    lanes: int
    lag: int
    free: bool
    traced: bool  # is its environment a part of the program?
    cores: int  # of the machine
    draws: int  # gradient steps of a round
    passes: str  # the flag that says how often it learns from its data, if there is one
    seen: int  # bytes of an observation
    sharded: bool  # is memory in several shards? Then stages can't be timed one by one


def facts_of(setup: Setup) -> RunFacts:
    """What matters of a run to its bottleneck."""
    plan, options, task, config = setup.plan, setup.options, setup.task, setup.config
    passes = [f"--{name.replace('_', '-')}" for name in _PASSES if hasattr(config, name)]
    return RunFacts(
        str(plan),
        options.on,
        setup.env_id,
        task.lanes,
        plan.lag,
        plan.free,
        traced=isinstance(task.env, Env),
        cores=jax_process.cores(),
        draws=task.algorithm.memory.draws,
        passes="".join(passes[:1]),
        seen=bytes_of(zeros(task.env.spec.observation)),
        sharded=plan.copies("memory") > 1,
    )


@dataclass(frozen=True)
class Profile:
    """Where a run's time went."""

    facts: RunFacts
    seconds: float  # since all was compiled
    starting: float  # seconds before that
    rounds: int  # since then
    pieces: tuple[Piece, ...]
    driver: Piece | None = None  # where it is not in the same thread as the pieces
    restarts: int = 0  # of copies, in all
    lost: float = 0.0  # the part of the time in which some of them were down
    stages: dict[str, float] | None = None  # shares of stages that were timed one by one
    more_rows: float | None = None  # times as long that a round of four times the rows takes
    one_step: float | None = None  # seconds of a gradient and its update, timed so
    advice: tuple[str, ...] = ()  # what would help, the most important first; only when asked for

    @property
    def everyone(self) -> tuple[Piece, ...]:
        """All pieces, and the driver if it has a thread of its own."""
        return (*self.pieces, *([self.driver] if self.driver else []))

    def table(self) -> str:
        """Shares by piece, stage and kind, with the range over copies; 80 columns at most."""
        head = f"{'piece, stage':14}{'what':19}{'share':>6}{'least, most':>15}{'times':>12}"
        lines = [f"{head}{'bytes':>12}"]
        for piece in self.everyone:
            rows = [share for share in piece.shares if share.part >= _LITTLE]
            lines += [piece.title] if rows else []
            for share in sorted(rows, key=lambda share: -share.part):
                what = f"waits for {share.kind}" if share.waits else share.kind
                moved = size(share.bytes) if share.bytes else ""
                line = f"  {share.stage:12}{what:19}{share.part:6.1%}{_spread(piece, share):>15}"
                lines.append(f"{line}{share.times:12,}{moved:>12}".rstrip())
        if self.stages:
            told = ", ".join(f"{stage} {part:.0%}" for stage, part in self.stages.items())
            lines.append(f"stages timed one by one: {told}")
        return "\n".join(lines)


def _busy(shares: Iterable[TimeShare]) -> float:
    return sum(share.part for share in shares if not share.waits)


def _spread(piece: Piece, share: TimeShare) -> str:
    """The smallest and the largest share among the copies."""
    if len(piece.each) < 2:
        return ""
    parts = [
        sum(other.part for other in own.shares if other[:2] == share[:2]) for own in piece.each
    ]
    return f"{min(parts):.0%} to {max(parts):.0%}"


def take_profile(run: Run) -> tuple[Profile, list[dict[str, Any]]]:
    """The profile of a run so far, and the newest events of all copies for a trace."""
    ring = run.ring
    every, driver = ring.timing_reports(), ring.meter.report()
    rows: dict[str, tuple[str, TimingReport]] = {}
    for name, one in chain(*every, [("driver", driver)]):
        rows.setdefault(one.who, (IN_TURN if ring.lowering.takes_turns else name, one))
    events = [traced(name, i, one) for i, (name, one) in enumerate(rows.values())]
    base = ring.base if ring.base and ring.round > ring.base.round else None
    before = base.told if base else {}
    told = [[one for _, one in piece] for piece in every]
    seen = put_together(ring, facts_of(run.setup), told, driver, before)
    restarts = ring.backend.restarts()
    down = restarts.seconds - (base.restarts if base else Restarts()).seconds
    seen = replace(
        seen,
        starting=max((one.seconds for one in before.values()), default=seen.starting),
        rounds=ring.round - (base.round if base else 0),
        restarts=restarts.times,
        lost=min(1.0, down / max(seen.seconds, 1e-9)),
    )
    return seen, list(chain(*events))


def put_together(
    ring: Ring,
    facts: RunFacts,
    told: Sequence[Sequence[Timings]],
    driver: Timings,
    before: Mapping[str, Timings],
) -> Profile:
    """A profile of what each piece's copies and the driver report, less what they did `before`.

    Copies of one thread report the same.
    """
    pieces: list[Piece] = []
    starting = seconds = 0.0
    seen: set[str] = set()
    for name, every in zip(_names(ring), told, strict=True):
        new = {one.who: _since(one, before) for one in every if one.who not in seen}
        seen.update(new)
        if new:
            pieces.append(_piece(name, list(new.values())))
        for one in new.values():
            first = sum(spent.seconds for spent in one.spent if spent.kind == STARTING)
            starting, seconds = max(starting, first), max(seconds, one.seconds - first)
    own = None if driver.who in seen else _piece("driver", [_since(driver, before)])
    return Profile(facts, seconds, starting, 0, tuple(pieces), own)


def _since(told: Timings, before: Mapping[str, Timings]) -> TimingSummary:
    """What was spent since then: all of it, if the copy began later."""
    seconds, spent = told.seconds, tuple(told.spent)
    if earlier := before.get(told.who):
        seconds, spent = seconds - earlier.seconds, tuple(since(spent, earlier.spent))
    return TimingSummary(told.who, seconds, spent, 0)


def _names(ring: Ring) -> list[str]:
    """A name for each piece: the same for those that share a thread or a program."""
    if ring.lowering.kind is Kind.GRADIENT_PARALLEL:
        return ["all"] * len(ring.copies)
    turns = ring.lowering.takes_turns
    return [IN_TURN if turns else piece.name for piece in ring.plan.pieces]


def traced(name: str, number: int, told: TimingReport) -> list[dict[str, Any]]:
    """A copy's newest events as a row for Chrome and Perfetto, in microseconds."""
    row = {"pid": 0, "tid": number}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "thread_name", "args": {"name": name}, **row}
    ]
    for event in told.events:
        word = f"waits for {event.kind}" if event.kind in WAITING else event.kind
        times = {"ts": event.began * 1e6, "dur": (event.ended - event.began) * 1e6}
        events.append({"ph": "X", "name": f"{event.stage}: {word}", **times, **row})
    return events


def _piece(name: str, told: Sequence[Timings]) -> Piece:
    each = []
    for i, one in enumerate(told):
        own = name if len(told) == 1 else f"{name} {i + 1} of {len(told)}"
        if shares := _shares(one.spent, 1):  # some have reported nothing new
            each.append(CopyTimes(own, shares))
    together = _shares(list(chain(*(one.spent for one in told))), len(told))
    return Piece(name, len(told), together, tuple(each))


def _shares(spent: Sequence[TimeBucket], copies: int) -> tuple[TimeShare, ...]:
    """The shares of all copies together, without what is done only once."""
    sums: dict[tuple[str, str], list[Any]] = {}
    for one in spent:
        if one.kind != STARTING:
            mine = sums.setdefault((one.stage, one.kind), [0.0, 0, 0])
            mine[0] += one.seconds
            mine[1] += one.times
            mine[2] += one.bytes
    total = sum(seconds for seconds, _, _ in sums.values()) or 1.0
    return tuple(
        TimeShare(stage, kind, seconds / total, seconds / copies, times, moved)
        for (stage, kind), (seconds, times, moved) in sums.items()
    )


def write_profile(
    folder: Path, profile: Profile, events: list[dict[str, Any]] | None = None
) -> None:
    """Write beside the run's other files. A full disk does not end a run for that."""
    facts = {k: v for k, v in asdict(profile).items() if k != "advice"}
    files = {FILE: json.dumps(facts, indent=1)}
    if events is not None:
        files[TRACE] = json.dumps({"traceEvents": events})
    for name, text in files.items():
        with suppress(OSError):
            replace_file(folder / name, text + "\n")


def read_profile(folder: Path) -> Profile:
    """Read what `write_profile` wrote, and refuse what it would not have written."""
    path = folder / FILE
    try:
        values = json.loads(path.read_text())
        pieces = tuple(_read_piece(*piece) for piece in values.pop("pieces"))
        driver = values.pop("driver")
        own = None if driver is None else _read_piece(*driver)
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


def _read_piece(name: Any, copies: Any, shares: Any, each: Any) -> Piece:
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
