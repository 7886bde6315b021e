"""Where the time of a run goes.

Every copy of a piece marks what it has done (`execution.meter`), and so does the driver; here they
are put together, as shares of the time since all was compiled. `diagnosis` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

from rondel.errors import RondelError
from rondel.execution.backends import registry
from rondel.execution.backends.protocol import Restarts
from rondel.execution.loop.ring import Ring
from rondel.execution.telemetry.timing import (
    SIMULATOR,
    STARTING,
    WAITING,
    TimeBucket,
    TimingReport,
    TimingSummary,
    since,
)
from rondel.formatting import size
from rondel.plan.parser import parse

_LITTLE = 0.005  # shares below are not shown
TIMING = 10.0  # seconds for which stages are timed apart, and again with more rows
WIDER = 4  # times the rows
_MORE = 4  # times as long as one program its stages take to compile, twice, about
_COMPILING = 2.0  # seconds at the least: what the cache has are the run's programs, and not these
IN_TURN = "all, in turn"  # the name of pieces that share a thread


class TimeShare(NamedTuple):
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


class CopyTimes(NamedTuple):
    """What one copy did."""

    name: str
    shares: tuple[TimeShare, ...]
    computed: float | None  # the part of its time in which its thread did not sleep, if known

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
        alone = CopyTimes(self.name, self.shares, None)
        return max(self.each, key=lambda own: own.busy, default=alone)

    @property
    def sleeps(self) -> bool:
        """Do its simulators sleep for most of their time?"""
        known = [own.computed for own in self.each if own.computed is not None]
        return bool(known) and sum(known) / len(known) < self.part(SIMULATOR) / 2

    def part(self, kind: str) -> float:
        return sum(share.part for share in self.shares if share.kind == kind)


class RunFacts(NamedTuple):
    """What a run is, as far as it matters to what bounds it and what would help."""

    plan: str
    on: str | None
    env: str
    lanes: int
    lag: int
    free: bool
    traced: bool  # is its environment a part of the program?
    fused: bool  # is all of it one program?
    cores: int  # that it can have
    draws: int  # gradient steps of a round
    batched: bool  # do its batches have a size of their own, which lanes don't change?
    remedies: dict[str, str]  # flags that this run would take, by what they do: see `remedies`
    passes: str = ""  # the flag that says how often it learns from what it has, if there is one
    seen: int = 0  # bytes of an observation

    @property
    def sharded(self) -> bool:
        """Is its memory in several shards? Then its stages can't be measured apart."""
        with suppress(RondelError):  # a file may say anything
            return parse(self.plan).copies("memory") > 1
        return False


@dataclass(frozen=True)
class Profile:
    """Where a run's time went."""

    about: RunFacts
    seconds: float  # since all was compiled
    starting: float  # seconds before that
    rounds: int  # since then
    pieces: tuple[Piece, ...]
    driver: Piece | None = None  # where it is not in the same thread as the pieces
    restarts: int = 0  # times that copies were started again, in all
    lost: float = 0.0  # the part of the time in which some of them were not there
    apart: dict[str, float] | None = None  # shares of stages in one program, measured apart
    more_rows: float | None = None  # times as long that a round of four times the rows takes
    one_step: float | None = None  # seconds of a gradient and its update, measured apart
    compiling: float = 0.0  # seconds of programs that ran for the first time, of all pieces

    @property
    def widened(self) -> bool:
        """Would its stages be timed with more rows too? What is cut is not told from dispatch."""
        return any(s.stage == "all" and s.part > 0.1 for piece in self.pieces for s in piece.shares)

    @property
    def apart_takes(self) -> float:
        """Seconds, about, that it would take to measure its stages apart.

        They are compiled once more, then timed for some eight rounds or a bound, in one thread.
        """
        work = sum(piece.copies * piece.busy for piece in self.pieces)
        each = self.seconds / max(self.rounds, 1) * work
        compiling = max(self.compiling, _COMPILING)
        if not self.widened:
            return compiling + _timed(each)
        return _MORE * compiling + _timed(each) + _timed(WIDER * each)

    def table(self) -> str:
        """Shares by piece, stage and kind, and how they differ among copies: 80 columns at most."""
        head = f"{'piece, stage':14}{'what':19}{'share':>6}{'least, most':>15}{'times':>12}"
        lines = [f"{head}{'bytes':>12}"]
        for piece in (*self.pieces, *([self.driver] if self.driver else [])):
            rows = [share for share in piece.shares if share.part >= _LITTLE]
            lines += [piece.title] if rows else []
            for share in sorted(rows, key=lambda share: -share.part):
                what = f"waits for {share.kind}" if share.waits else share.kind
                moved = size(share.bytes) if share.bytes else ""
                line = f"  {share.stage:12}{what:19}{share.part:6.1%}{_spread(piece, share):>15}"
                lines.append(f"{line}{share.times:12,}{moved:>12}".rstrip())
        if self.apart:
            told = ", ".join(f"{stage} {part:.0%}" for stage, part in self.apart.items())
            lines.append(f"measured apart: {told}")
        return "\n".join(lines)


def _timed(each: float) -> float:
    """Seconds for which stages are timed, if a round takes `each`: some of it is always done."""
    return min(8 * each, TIMING + 3 * each)


def _busy(shares: Iterable[TimeShare]) -> float:
    return sum(share.part for share in shares if not share.waits)


def _spread(piece: Piece, share: TimeShare) -> str:
    """The least and the most that a copy has of it."""
    if len(piece.each) < 2:
        return ""
    parts = [
        sum(other.part for other in own.shares if other[:2] == share[:2]) for own in piece.each
    ]
    return f"{min(parts):.0%} to {max(parts):.0%}"


def take_profile(ring: Ring, about: RunFacts) -> tuple[Profile, list[dict[str, Any]]]:
    """The profile of a run so far, and the newest events of all copies for a trace."""
    every, driver = ring.metered(), ring.meter.told()
    rows: dict[str, tuple[str, TimingReport]] = {}
    for name, one in chain(*every, [("driver", driver)]):
        rows.setdefault(one.who, (IN_TURN if _in_turn(ring) else name, one))
    events = [traced(name, i, one) for i, (name, one) in enumerate(rows.values())]
    base = ring.base.told if ring.base and ring.round > ring.base.round else {}
    first = ring.base.round if base and ring.base else 0
    told = [[_since(one, base.get(one.who)) for _, one in piece] for piece in every]
    seen = put_together(ring, about, told, _since(driver, base.get(driver.who)))
    before = max((one.seconds for one in base.values()), default=seen.starting)
    again = ring.backend.restarts()
    earlier = ring.base.restarts if base and ring.base else Restarts()
    lost = min(1.0, (again.seconds - earlier.seconds) / max(seen.seconds, 1e-9))
    begun = [[base.get(one.who, one) for _, one in piece] for piece in every]
    seen = replace(seen, starting=before, rounds=ring.round - first, compiling=_compiling(begun))
    return replace(seen, restarts=again.times, lost=lost), list(chain(*events))


def _compiling(told: Sequence[Sequence[TimingReport]]) -> float:
    """Seconds of the first runs of all pieces' programs, as if one came after the other.

    Copies compile the same; environments are made meanwhile, and processes started.
    """
    total, seen = 0.0, set[str]()
    for every in told:
        new = [one for one in every if one.who not in seen]
        seen.update(one.who for one in new)
        total += max(map(_first_runs, new), default=0.0)
    return total


def _first_runs(one: TimingReport) -> float:
    mine = (spent for spent in one.spent if spent.kind == STARTING)
    return sum(spent.seconds for spent in mine if spent.stage not in ("env", "driver", "keeping"))


def _since(told: TimingReport, before: TimingReport | None) -> TimingReport:
    """What a copy did since then; one that has begun since has done all of it."""
    if before is None:
        return told
    seconds, computed = told.seconds - before.seconds, told.computed - before.computed
    spent = since(told.spent, before.spent)
    return replace(told, seconds=seconds, spent=spent, computed=computed)


def put_together(
    ring: Ring,
    about: RunFacts,
    told: Sequence[Sequence[TimingReport | TimingSummary]],
    driver: TimingReport | TimingSummary,
) -> Profile:
    """The profile of what the copies of each piece say; those who share a thread say the same."""
    pieces: list[Piece] = []
    starting = seconds = 0.0
    seen: set[str] = set()
    for name, every in zip(_names(ring), told, strict=True):
        new = {one.who: one for one in every if one.who not in seen}
        seen.update(new)
        if new:
            pieces.append(_piece(name, list(new.values()), about.on))
        for one in new.values():
            first = sum(spent.seconds for spent in one.spent if spent.kind == STARTING)
            starting, seconds = max(starting, first), max(seconds, one.seconds - first)
    own = None if driver.who in seen else _piece("driver", [driver], about.on)
    return Profile(about, seconds, starting, 0, tuple(pieces), own)


def _in_turn(ring: Ring) -> bool:
    """Do several pieces share the driver's thread?"""
    return ring.here and len(ring.copies) > 1 and not ring.spreads


def _names(ring: Ring) -> list[str]:
    """What the pieces are called: those that share a thread, or a program, have one name."""
    if _in_turn(ring) or ring.spreads:
        return [IN_TURN if _in_turn(ring) else "all"] * len(ring.copies)
    return [piece.name for piece in ring.plan.pieces]


def traced(name: str, number: int, told: TimingReport) -> list[dict[str, Any]]:
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


def _piece(name: str, told: Sequence[TimingReport | TimingSummary], on: str | None) -> Piece:
    each = []
    for i, one in enumerate(told):
        own = name if len(told) == 1 else f"{name} {i + 1} of {len(told)}"
        if shares := _shares(one.spent, 1):  # some have said nothing of late
            each.append(CopyTimes(own, shares, _computed(one, on)))
    together = _shares(list(chain(*(one.spent for one in told))), len(told))
    return Piece(name, len(told), together, tuple(each))


def _computed(one: TimingReport | TimingSummary, on: str | None) -> float | None:
    """The part of it in which it did not sleep, where the backend can measure that."""
    if isinstance(one, TimingSummary) or not registry.find(on).measures_cpu or not one.seconds:
        return None
    return min(1.0, one.computed / one.seconds)


def _shares(spent: Sequence[TimeBucket], copies: int) -> tuple[TimeShare, ...]:
    """The shares of so many copies together, without what is done but once."""
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
