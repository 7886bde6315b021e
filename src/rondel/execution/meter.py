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
from typing import Any, NamedTuple, TypeAlias

SIMULATOR, PYTHON, XLA, TRANSPORT = "simulator", "python", "xla", "transport"
STARTING = "starting"  # what is done but once, most of it compiling
# what a copy waits for: the learner's weights, or in a free run for it to take in what was made;
# what others make for it; actions for its environments; steps of environments elsewhere
WEIGHTS, ROOM, DATA, ACTIONS, STEPS = "weights", "room", "data", "actions", "steps"
# what the driver does between rounds: its user's own code; rows, display and checkpoints. Else it
# waits for the copies, or has them in its own thread
CALLBACK, OUTPUT, ROUNDS = "callback", "output", "rounds"
WAITING = (WEIGHTS, ROOM, DATA, ACTIONS, STEPS, ROUNDS)

_STAGES = {
    **dict.fromkeys(("begin", "reset", "step"), "env"),
    **dict.fromkeys(("add", "draw", "rank"), "memory"),
    **dict.fromkeys(("absorb", "update", "learning", "acting"), "update"),
    **dict.fromkeys(("know", "label"), "label"),
    **{"gradient": "gradient", "learn": "learner", "advance": "all"},
}
_OTHER = "keeping"  # snapshots and the like
_EVENTS = 4_000  # the newest are kept
_EVERY = 1.0  # seconds between two things that a meter says in passing
_SUMMED = 0.1  # seconds between two times that marks are summed


class Spent(NamedTuple):
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


class Glance(NamedTuple):
    """What a meter says in passing, with an answer that is sent anyhow."""

    who: str  # as in `Told`
    seconds: float
    spent: tuple[Spent, ...]
    resident: int  # bytes of its process in memory; 0 if that is not known


class Seen(NamedTuple):
    """What a copy says in passing of itself, and of environments elsewhere that it drives."""

    mine: Glance
    driven: dict[int, Glance]  # by env copy


@dataclass(frozen=True)
class Told:
    """What a meter says; `who` tells it from others, where copies share one."""

    who: str
    seconds: float  # since it was made
    spent: list[Spent]
    events: list[Event]  # the newest
    clock: float  # of its machine, now
    computed: float  # seconds that its thread was on a core: less than it was busy, if it slept

    def earlier(self, seconds: float) -> Told:
        """The same by a clock that is so much behind."""
        events = [Event(s, k, a - seconds, b - seconds) for s, k, a, b in self.events]
        return replace(self, events=events, clock=self.clock - seconds)


class Meter:
    """What one copy, or all that are in one thread, have spent their time on.

    A mark is only written down: between other work all that it touches has left the caches, and
    what is summed later, many marks at once, costs a fraction. It is written as plain values into
    one list: of a tuple each, the collector of garbage would look through all that there is sooner.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = self._last = clock()
        self._log: _Log = []
        self._sums: _Sums = ({}, self._began, self._log)
        self._older: deque[tuple[float, _Log]] = deque()  # marks that are summed, for events
        self._sum_at = self._began + _SUMMED
        self.copy = ""  # whose turn it is, where copies share a thread
        self._known: set[tuple[str, str]] = set()  # programs that have run, by copy
        self._said = -math.inf  # when it last said something in passing

    def mark(self, stage: str, kind: str, bytes: int = 0) -> None:
        """All since the last mark was this."""
        self._last = now = self._clock()
        self._log += (stage, kind, bytes, now)
        if now > self._sum_at:
            self._sum_up()

    def ran(self, stage: str, program: str, kind: str = XLA) -> None:
        """All since the last mark was one run of this, of which a copy's first is like no other."""
        if (self.copy, program) in self._known:
            self.mark(stage, kind)
        else:
            self._known.add((self.copy, program))
            self.mark(stage, STARTING)

    def told(self) -> Told:
        """All of it so far."""
        self._sum_up()
        ahead = time.time() - self._clock()
        events = [
            Event(stage, kind, began + ahead, ended + ahead)
            for start, log in self._older
            for began, (stage, kind, _, ended) in zip(
                [start, *log[3::4]], _marks(log), strict=False
            )
        ][-_EVENTS:]
        seconds, computed = self._last - self._began, time.thread_time()
        return Told(self._who, seconds, self._spent(), events, time.time(), computed)

    def glance(self) -> Glance:
        """The same without events, also for another thread."""
        return Glance(self._who, self._last - self._began, tuple(self._spent()), resident())

    def newest(self) -> tuple[str, float, float]:
        """What was marked last, when, and how many seconds ago, for another thread."""
        log = self._log or (self._older[-1][1] if self._older else [])
        stage = log[-4] if log else ""
        return stage, self._last, self._clock() - self._last

    def is_due(self) -> bool:
        """Should it say something in passing again? At most once a second."""
        if self._last - self._said < _EVERY:
            return False
        self._said = self._last
        return True

    def _sum_up(self) -> None:
        """Nothing that another thread may be reading is changed: there are new sums."""
        _, began, log = self._sums
        self._older.append((began, log))
        kept = sum(len(log) for _, log in self._older)
        while kept - len(self._older[0][1]) >= 4 * _EVENTS:
            kept -= len(self._older.popleft()[1])
        sums, self._log = _added(*self._sums), []
        self._sums, self._sum_at = (sums, self._last, self._log), self._last + _SUMMED

    def _spent(self) -> list[Spent]:
        sums, began, log = self._sums
        return [
            Spent(stage, kind, seconds, times, moved)
            for (stage, kind), (seconds, times, moved) in _added(sums, began, log.copy()).items()
        ]

    @property
    def _who(self) -> str:
        return f"{os.getpid()}-{id(self)}"


_Log: TypeAlias = list[Any]  # of each mark stage, kind, bytes and when it ended
_Spent: TypeAlias = dict[tuple[str, str], tuple[float, int, int]]
_Sums: TypeAlias = tuple[_Spent, float, _Log]  # until when, and what was marked since


def _marks(log: _Log) -> Iterable[tuple[str, str, int, float]]:
    values = iter(log)
    return zip(values, values, values, values, strict=True)


def _added(spent: _Spent, began: float, log: _Log) -> _Spent:
    """What was spent, with what was marked since."""
    sums = spent.copy()
    for stage, kind, nbytes, ended in _marks(log):
        seconds, times, moved = sums.get((stage, kind), (0.0, 0, 0))
        sums[stage, kind] = (seconds + (ended - began), times + 1, moved + nbytes)
        began = ended
    return sums


class Metered:
    """What each copy is made of: it has a meter, from when it is first asked for something."""

    kind = XLA  # what most of its time is
    links: Mapping[int, Any] = {}  # to environments that are not in the same program

    @cached_property
    def meter(self) -> Meter:
        return Meter()

    def metered(self) -> Told:
        """Where its time went."""
        return self.meter.told()

    def seen(self) -> Seen:
        """The same in passing, with what it last heard of environments elsewhere."""
        heard = {env: getattr(link, "heard", None) for env, link in self.links.items()}
        return Seen(self.meter.glance(), {env: said for env, said in heard.items() if said})

    def seen_if_due(self) -> Seen | None:
        """Now and then; else nothing."""
        return self.seen() if self.meter.is_due() else None


def since(now: Iterable[Spent], before: Iterable[Spent]) -> list[Spent]:
    """What was spent of late: all of it, but for what was spent before."""
    earlier = {(spent.stage, spent.kind): spent for spent in before}
    late = []
    for one in now:
        was = earlier.get((one.stage, one.kind), Spent(one.stage, one.kind, 0.0, 0, 0))
        if one.times > was.times:
            more = (one.seconds - was.seconds, one.times - was.times, one.bytes - was.bytes)
            late.append(Spent(one.stage, one.kind, *more))
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

    All that a program gives is there at once, so one of its arrays tells.
    """
    if jax := sys.modules.get("jax"):
        for leaf in jax.tree.leaves(tree):
            if isinstance(leaf, jax.Array):
                leaf.block_until_ready()
                break
    return tree


def waited(fragment: Any, request: str) -> str:
    """Mark what a copy waited for that is asked this now -> the stage whose business it is."""
    stage = stage_of(fragment, request)
    if request == "produce":
        kind = ROOM if fragment.plan.free else WEIGHTS
    else:
        kind = ACTIONS if request in ("reset", "step") else DATA
    fragment.meter.ran(stage, f"before {request}", kind)
    return stage


def stage_of(fragment: Any, request: str) -> str:
    """Which stage a request is the business of."""
    if request == "produce":
        return "policy" if fragment.links else "actor"
    return _STAGES.get(request, _OTHER)
