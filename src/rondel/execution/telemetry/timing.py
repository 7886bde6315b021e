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
from typing import Any, NamedTuple

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
_NOTHING = 0.0, 0, 0  # seconds, times and bytes
_EVERY = 1.0  # seconds between two summaries that go along with replies


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
    """What one copy, or all copies of one thread, spend their time on."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = self._last = clock()
        self._spent: dict[tuple[str, str], tuple[float, int, int]] = {}  # seconds, times, bytes
        # as plain tuples, which take less time to make than an `Event`
        self._events: deque[tuple[str, str, float, float]] = deque(maxlen=_EVENTS)
        self.copy = ""  # the copy whose turn it is, where copies share a thread
        self._known: set[tuple[str, str, str]] = set()  # what has run before, by copy
        self._said = -math.inf  # when it last gave a summary to a reply

    def mark(self, stage: str, kind: str, bytes: int = 0) -> None:
        """Book all time since the last mark on this."""
        began, now, name = self._last, self._clock(), (stage, kind)
        self._last = now
        seconds, times, moved = self._spent.get(name, _NOTHING)
        self._spent[name] = seconds + (now - began), times + 1, moved + bytes
        self._events.append((stage, kind, began, now))

    def ran(self, stage: str, program: str, kind: str = XLA) -> None:
        """Book all time since the last mark on a run of this program; a copy's first compiles."""
        name = (self.copy, program, kind)
        if name in self._known:
            self.mark(stage, kind)
        else:
            self._known.add(name)
            self.mark(stage, STARTING)

    def report(self) -> TimingReport:
        """All of it so far."""
        mine, now = self.summary(), time.time()
        ahead = now - self._clock()
        events = [Event(s, k, a + ahead, b + ahead) for s, k, a, b in self._events]
        return TimingReport(mine.who, mine.seconds, [*mine.spent], events, now)

    def summary(self) -> TimingSummary:
        """The sums so far; another thread may call it."""
        spent = self._spent.copy().items()  # the copy, as its thread may be adding to it
        buckets = tuple(TimeBucket(stage, kind, *sums) for (stage, kind), sums in spent)
        seconds = self._last - self._began
        return TimingSummary(f"{os.getpid()}-{id(self)}", seconds, buckets, resident())

    def newest(self) -> tuple[str, float]:
        """The stage marked last, and when; another thread may call it."""
        stage, _, _, ended = self._events[-1] if self._events else ("", "", 0.0, self._began)
        return stage, ended

    def is_due(self) -> bool:
        """Should the next reply have a summary? At most once a second."""
        if self._last - self._said < _EVERY:
            return False
        self._said = self._last
        return True


class Metered:
    """A worker with a meter, which begins with the first request."""

    kind = XLA  # of most of its time
    links: Mapping[int, Any] = {}  # clients of environments in other copies

    @cached_property
    def meter(self) -> Meter:
        return Meter()

    def timing_report(self) -> TimingReport:
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
