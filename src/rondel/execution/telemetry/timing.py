"""Where the time of a copy goes: seconds, times and bytes by stage and kind. It imports no jax.

A copy does one thing after the other, and marks the end of each: all time since the mark before
belongs to it. So the marks add up to the time that has passed, and none is counted twice.
After RL-Scope: Cross-Stack Profiling for Deep Reinforcement Learning Workloads, arXiv 2102.04285.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle
from typing import Any, NamedTuple, TypeAlias

import numpy as np

SIMULATOR, PYTHON, XLA, TRANSPORT = "simulator", "python", "xla", "transport"
STARTING = "starting"  # done only once, mostly compiling
# what a copy waits for: the learner's weights; in a free run, that the learner takes its rollout;
# data of other copies; actions for its environments; steps of environments elsewhere
WEIGHTS, ROOM, DATA, ACTIONS, STEPS = "weights", "room", "data", "actions", "steps"
# what the driver does between rounds: hooks of the user; metrics, display and checkpoints; episodes
# of --eval-every. In a round it waits for the copies, or runs them in its own thread
CALLBACK, OUTPUT, EVALUATION, ROUNDS = "callback", "output", "evaluation", "rounds"
WAITING = (WEIGHTS, ROOM, DATA, ACTIONS, STEPS, ROUNDS)

_EVENTS = 4_000  # events kept, the newest
_EVERY = 1.0  # seconds between two summaries that go along with replies
_SUMMED = 0.1  # seconds after which marks are summed
_BEATS = "beats"  # in place of a kind: marks of a loop


class TimeBucket(NamedTuple):
    """Time that a copy has spent on one kind of work in one stage."""

    stage: str
    kind: str
    seconds: float
    times: int
    bytes: int


class Event(NamedTuple):
    """One piece of work of a copy, in seconds of its machine's clock."""

    stage: str
    kind: str
    began: float
    ended: float


class TimingSummary(NamedTuple):
    """The sums of a meter, small enough to go along with a reply."""

    who: str  # as in `TimingReport`
    seconds: float
    spent: tuple[TimeBucket, ...]
    resident: int  # bytes of its process in memory; 0 if that is not known


class PiggybackedTimings(NamedTuple):
    """The summary of a copy that came with a reply, and those of its environments elsewhere."""

    mine: TimingSummary
    driven: dict[int, TimingSummary]  # by env copy


@dataclass(frozen=True)
class TimingReport:
    """All that a meter knows; `who` identifies the meter, as copies may share one."""

    who: str
    seconds: float  # since it was made
    spent: list[TimeBucket]
    events: list[Event]  # the newest
    clock: float  # of its machine, when this was made

    def earlier(self, seconds: float) -> TimingReport:
        """This report by a clock that is `seconds` behind."""
        events = [Event(s, k, a - seconds, b - seconds) for s, k, a, b in self.events]
        return replace(self, events=events, clock=self.clock - seconds)


class Meter:
    """What one copy, or all copies of one thread, spend their time on.

    A mark is only written down: summing many marks at once later costs a fraction, as the sums have
    left the caches in between. It is written as plain values into one list, since a tuple for each
    would make Python collect garbage more often. A loop that does the same few things in turn
    writes down only when each ended (`beats`).
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = self._last = clock()
        self._log: _Log = []
        self._sums: _Sums = ({}, self._began, self._log)
        self._older: deque[tuple[float, _Log]] = deque()  # summed marks, kept for events
        self._kept = 0  # how many those are
        self._sum_at = self._began + _SUMMED
        self.copy = ""  # the copy whose turn it is, where copies share a thread
        self._known: set[tuple[str, str, str]] = set()  # what has run before, by copy
        self._said = -math.inf  # when it last gave a summary to a reply

    def mark(self, stage: str, kind: str, bytes: int = 0) -> None:
        """Book all time since the last mark on this."""
        self._last = now = self._clock()
        self._log += (stage, kind, bytes, now)
        if now > self._sum_at:
            self._sum_up()

    def ran(self, stage: str, program: str, kind: str = XLA) -> None:
        """Book all time since the last mark on a run of this program; a copy's first compiles."""
        name = (self.copy, program, kind)
        if name in self._known:
            self.mark(stage, kind)
        else:
            self._known.add(name)
            self.mark(stage, STARTING)

    def beats(self, *names: tuple[str, str]) -> Callable[[], None]:
        """Book the work of a loop: call the result when each of these (stage, kind) has ended.

        Until the loop is over nothing else may be marked.
        """
        ends: list[float] = []
        self._log += (names, _BEATS, ends, self._last)
        # append(clock()), again and again, in which no Python runs
        return map(ends.append, iter(self._clock, None)).__next__

    def report(self) -> TimingReport:
        """All of it so far."""
        self._sum_up()
        ahead = time.time() - self._clock()
        events = [
            Event(stage, kind, began + ahead, ended + ahead)
            for start, log in self._older
            for stage, kind, began, ended in _events(start, log)
        ][-_EVENTS:]
        seconds = self._newest()[1] - self._began
        return TimingReport(self._who, seconds, self._spent(), events, time.time())

    def summary(self) -> TimingSummary:
        """The sums so far; another thread may call it."""
        seconds = self._newest()[1] - self._began
        return TimingSummary(self._who, seconds, tuple(self._spent()), resident())

    def newest(self) -> tuple[str, float, float]:
        """The stage marked last, when, and how many seconds ago; another thread may call it."""
        stage, ended = self._newest()
        return stage, ended, self._clock() - ended

    def _newest(self) -> tuple[str, float]:
        log = self._log or (self._older[-1][1] if self._older else [])
        if not log:
            return "", self._last
        stage, kind, ends, last = log[-4:]
        if kind != _BEATS:
            return stage, last
        return (stage[(len(ends) - 1) % len(stage)][0], ends[-1]) if ends else ("", last)

    def is_due(self) -> bool:
        """Should the next reply have a summary? At most once a second."""
        if self._last - self._said < _EVERY:
            return False
        self._said = self._last
        return True

    def _sum_up(self) -> None:
        """Make new sums: another thread may be reading the old ones."""
        _, began, log = self._sums
        if not log:
            return
        self._last = self._newest()[1]
        self._older.append((began, log))
        self._kept += _count(log)
        while self._kept - (oldest := _count(self._older[0][1])) >= _EVENTS:
            self._older.popleft()
            self._kept -= oldest
        sums, self._log = _added(*self._sums), []
        self._sums, self._sum_at = (sums, self._last, self._log), self._last + _SUMMED

    def _spent(self) -> list[TimeBucket]:
        sums, began, log = self._sums
        return [
            TimeBucket(stage, kind, seconds, times, moved)
            for (stage, kind), (seconds, times, moved) in _added(sums, began, log.copy()).items()
        ]

    @property
    def _who(self) -> str:
        return f"{os.getpid()}-{id(self)}"


# of each mark: stage, kind, bytes, when it ended; of a loop: its stages and kinds, _BEATS, when
# each of them ended, when the loop began
_Log: TypeAlias = list[Any]
_Spent: TypeAlias = dict[tuple[str, str], tuple[float, int, int]]
_Sums: TypeAlias = tuple[_Spent, float, _Log]  # until when, and what was marked since


def _marks(log: _Log) -> Iterable[tuple[Any, str, Any, float]]:
    values = iter(log)
    return zip(values, values, values, values, strict=True)


def _count(log: _Log) -> int:
    loops = (len(ends) - 1 for ends in log[2::4] if isinstance(ends, list))
    return len(log) // 4 + sum(loops)


def _events(began: float, log: _Log) -> Iterable[tuple[str, str, float, float]]:
    for what, kind, moved, ended in _marks(log):
        beaten = kind == _BEATS
        each = zip(cycle(what), moved, strict=False) if beaten else [((what, kind), ended)]
        for (stage, one), end in each:
            yield stage, one, began, end
            began = end


def _added(spent: _Spent, began: float, log: _Log) -> _Spent:
    """The sums, with the marks made since."""
    sums = spent.copy()

    def add(name: tuple[str, str], seconds: float, times: int, moved: int) -> None:
        before = sums.get(name, (0.0, 0, 0))
        sums[name] = (before[0] + seconds, before[1] + times, before[2] + moved)

    for what, kind, moved, ended in _marks(log):
        if kind != _BEATS:
            add((what, kind), ended - began, 1, moved)
            began = ended
        elif ends := moved.copy():  # another thread may be adding to them
            each = [ends[i :: len(what)] for i in range(len(what))]
            until = [sum(mine) for mine in each]
            starts = [until[-1] + began, *until[:-1]]
            starts[len(ends) % len(what)] -= ends[-1]  # at which something began that is not over
            for name, mine, end, start in zip(what, each, until, starts, strict=True):
                add(name, end - start, len(mine), 0)
            began = ends[-1]
    return sums


class Metered:
    """A worker with a meter, which begins with the first request."""

    kind = XLA  # of most of its time
    links: Mapping[int, Any] = {}  # clients of environments in other copies

    @cached_property
    def meter(self) -> Meter:
        return Meter()

    def metered(self) -> TimingReport:
        """Where its time went."""
        return self.meter.report()

    def timings(self) -> PiggybackedTimings:
        """Its summary, with the latest ones of its environments elsewhere."""
        heard = {env: getattr(link, "heard", None) for env, link in self.links.items()}
        return PiggybackedTimings(
            self.meter.summary(), {env: said for env, said in heard.items() if said}
        )

    def timings_if_due(self) -> PiggybackedTimings | None:
        """These now and then, else None."""
        return self.timings() if self.meter.is_due() else None


def since(now: Iterable[TimeBucket], before: Iterable[TimeBucket]) -> list[TimeBucket]:
    """What was spent since an earlier report or summary."""
    earlier = {(spent.stage, spent.kind): spent for spent in before}
    late = []
    for one in now:
        was = earlier.get((one.stage, one.kind), TimeBucket(one.stage, one.kind, 0.0, 0, 0))
        if one.times > was.times:
            more = (one.seconds - was.seconds, one.times - was.times, one.bytes - was.bytes)
            late.append(TimeBucket(one.stage, one.kind, *more))
    return late


def resident() -> int:
    """The bytes of this process that are in memory; 0 if unknown."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def ready(tree: Any) -> Any:
    """Wait for the results of a program, so that its time and its failure are its caller's.

    All results of a program are there at once, so one array is enough; arrays that only passed
    through (`task.lean`) are not waited for.
    """
    if (one := _array_in(tree)) is not None:
        one.block_until_ready()
    return tree


def _array_in(tree: Any) -> Any:
    """The first array of JAX in a tree, without flattening all of it."""
    if tree is None or isinstance(tree, np.ndarray):
        return None
    if hasattr(tree, "block_until_ready"):
        return tree
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, tuple | list):
        jax = sys.modules.get("jax")
        leaves = jax.tree.leaves(tree) if jax else ()
        return next((leaf for leaf in leaves if hasattr(leaf, "block_until_ready")), None)
    return next((one for part in tree if (one := _array_in(part)) is not None), None)
