"""Where the time of a copy goes: seconds, times and bytes by stage and kind. It imports no jax.

A copy does one thing after the other. Whoever has done a thing marks it: all time since the mark
before is its. So what is marked adds up to the time that has passed, and none is counted twice.
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
STARTING = "starting"  # what is done but once, most of it compiling
# what a copy waits for: the learner's weights, or in a free run for it to take in what was made;
# what others make for it; actions for its environments; steps of environments elsewhere
WEIGHTS, ROOM, DATA, ACTIONS, STEPS = "weights", "room", "data", "actions", "steps"
# what the driver does between rounds: its user's own code; rows, display and checkpoints. Else it
# waits for the copies, or has them in its own thread
CALLBACK, OUTPUT, ROUNDS = "callback", "output", "rounds"
WAITING = (WEIGHTS, ROOM, DATA, ACTIONS, STEPS, ROUNDS)

_EVENTS = 4_000  # the newest are kept
_EVERY = 1.0  # seconds between two things that a meter says in passing
_SUMMED = 0.1  # seconds between two times that marks are summed
_BEATS = "beats"  # in place of a kind: marks of a loop


class TimeBucket(NamedTuple):
    """What a copy has spent on one kind of thing in one stage."""

    stage: str
    kind: str
    seconds: float
    times: int
    bytes: int


class Event(NamedTuple):
    """One thing that a copy did, in seconds of its machine's clock."""

    stage: str
    kind: str
    began: float
    ended: float


class TimingSummary(NamedTuple):
    """What a meter says in passing, with an answer that is sent anyhow."""

    who: str  # as in `Told`
    seconds: float
    spent: tuple[TimeBucket, ...]
    resident: int  # bytes of its process in memory; 0 if that is not known


class PiggybackedTimings(NamedTuple):
    """What a copy says in passing of itself, and of environments elsewhere that it drives."""

    mine: TimingSummary
    driven: dict[int, TimingSummary]  # by env copy


@dataclass(frozen=True)
class TimingReport:
    """What a meter says; `who` tells it from others, where copies share one."""

    who: str
    seconds: float  # since it was made
    spent: list[TimeBucket]
    events: list[Event]  # the newest
    clock: float  # of its machine, now

    def earlier(self, seconds: float) -> TimingReport:
        """The same by a clock that is so much behind."""
        events = [Event(s, k, a - seconds, b - seconds) for s, k, a, b in self.events]
        return replace(self, events=events, clock=self.clock - seconds)


class Meter:
    """What one copy, or all that are in one thread, have spent their time on.

    A mark is only written down: between other work all that it touches has left the caches, and
    what is summed later, many marks at once, costs a fraction. It is written as plain values into
    one list: of a tuple each, the collector of garbage would look through all that there is sooner.
    A loop that does the same few things in turn writes down no more than when each ended (`beats`).
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = self._last = clock()
        self._log: _Log = []
        self._sums: _Sums = ({}, self._began, self._log)
        self._older: deque[tuple[float, _Log]] = deque()  # marks that are summed, for events
        self._kept = 0  # how many those are
        self._sum_at = self._began + _SUMMED
        self.copy = ""  # whose turn it is, where copies share a thread
        self._known: set[tuple[str, str, str]] = set()  # what has run before, by copy
        self._said = -math.inf  # when it last said something in passing

    def mark(self, stage: str, kind: str, bytes: int = 0) -> None:
        """All since the last mark was this."""
        self._last = now = self._clock()
        self._log += (stage, kind, bytes, now)
        if now > self._sum_at:
            self._sum_up()

    def ran(self, stage: str, program: str, kind: str = XLA) -> None:
        """All since the last mark was one run of this, of which a copy's first is like no other."""
        name = (self.copy, program, kind)
        if name in self._known:
            self.mark(stage, kind)
        else:
            self._known.add(name)
            self.mark(stage, STARTING)

    def beats(self, *names: tuple[str, str]) -> Callable[[], None]:
        """For a loop that does these, by stage and kind, in turn: call it when each is done.

        Until the loop is over nothing else is marked.
        """
        ends: list[float] = []
        self._log += (names, _BEATS, ends, self._last)
        # append(clock()), again and again, in which no Python runs
        return map(ends.append, iter(self._clock, None)).__next__

    def told(self) -> TimingReport:
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

    def glance(self) -> TimingSummary:
        """The same without events, also for another thread."""
        seconds = self._newest()[1] - self._began
        return TimingSummary(self._who, seconds, tuple(self._spent()), resident())

    def newest(self) -> tuple[str, float, float]:
        """What was marked last, when, and how many seconds ago, for another thread."""
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
        """Should it say something in passing again? At most once a second."""
        if self._last - self._said < _EVERY:
            return False
        self._said = self._last
        return True

    def _sum_up(self) -> None:
        """Nothing that another thread may be reading is changed: there are new sums."""
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


# of each mark stage, kind, bytes and when it ended; of a loop's the stages and kinds in turn,
# _BEATS, when each of them ended, and when it began
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
    """What was spent, with what was marked since."""
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
    """What each copy is made of: it has a meter, from when it is first asked for something."""

    kind = XLA  # what most of its time is
    links: Mapping[int, Any] = {}  # to environments that are not in the same program

    @cached_property
    def meter(self) -> Meter:
        return Meter()

    def metered(self) -> TimingReport:
        """Where its time went."""
        return self.meter.told()

    def seen(self) -> PiggybackedTimings:
        """The same in passing, with what it last heard of environments elsewhere."""
        heard = {env: getattr(link, "heard", None) for env, link in self.links.items()}
        return PiggybackedTimings(
            self.meter.glance(), {env: said for env, said in heard.items() if said}
        )

    def seen_if_due(self) -> PiggybackedTimings | None:
        """Now and then; else nothing."""
        return self.seen() if self.meter.is_due() else None


def since(now: Iterable[TimeBucket], before: Iterable[TimeBucket]) -> list[TimeBucket]:
    """What was spent of late: all of it, but for what was spent before."""
    earlier = {(spent.stage, spent.kind): spent for spent in before}
    late = []
    for one in now:
        was = earlier.get((one.stage, one.kind), TimeBucket(one.stage, one.kind, 0.0, 0, 0))
        if one.times > was.times:
            more = (one.seconds - was.seconds, one.times - was.times, one.bytes - was.bytes)
            late.append(TimeBucket(one.stage, one.kind, *more))
    return late


def resident() -> int:
    """The bytes of this process that are in memory; 0 where the system doesn't say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def ready(tree: Any) -> Any:
    """The same, once it is there: a program's failure and its time belong to who asked for it.

    All that a program gives is there at once, so one of its arrays tells; of what has passed by it
    (`task.lean`) none is waited for.
    """
    if (one := _array_in(tree)) is not None:
        one.block_until_ready()
    return tree


def _array_in(tree: Any) -> Any:
    """An array of JAX, the first that there is. To look at all of a learner would take longer."""
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
