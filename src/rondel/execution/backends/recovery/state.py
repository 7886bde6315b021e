"""What is known of a run's copies, and what to do when one dies, hangs or is late.

One state machine for every backend: it takes events and gives instructions, which the backend obeys
in order. Nothing in it reads a clock or sends a message, so each race is a table of events in a
test. `log` holds the last events with their instructions; it is shown when the run fails.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from rondel.execution.backends.protocol import Restarts
from rondel.execution.backends.recovery import events as ev
from rondel.execution.backends.recovery import policy
from rondel.execution.backends.recovery.event_log import EventLog
from rondel.execution.requests import KEEP, Request
from rondel.execution.telemetry import timeouts as limits
from rondel.execution.telemetry.timeouts import Timeouts, no_answer

_DRIVER_AWAY = 10.0  # seconds without any event: the driver was stopped or busy, and no copy late
_SEARCH_AGAIN = 0.5  # seconds before lost results are asked for again
_FIRST_BAR, _LONGEST_BAR = 10.0, 600.0  # seconds until a copy that failed to come may try again
_TOO_LARGE = (
    "The state of {} is over 2 GiB, so no snapshot was kept. Resume from the last checkpoint."
)
_OUT_OF_MEMORY = " If the machine ran out of memory (see dmesg), use fewer copies or cuts."


@dataclass
class CopyState:
    """One copy: the incarnation that is there, and what became of those before it."""

    name: str  # for people; with its process once that is known
    unit: tuple[int, ...]  # the copies that are restarted together with it, itself included
    has_snapshots: bool  # False for an environment whose state is its policy's
    present: bool = True  # False: a copy of a range that has not been started, or was ended
    coming: bool = False  # started, but not arrived: requests are outstanding, yet nobody waits
    outstanding: deque[Request] = field(default_factory=deque)  # sent and unanswered, oldest first
    answered: set[Request] = field(default_factory=set)  # by this incarnation: later ones are fast
    heard_at: float = 0.0  # when it last answered, or was asked with nothing outstanding
    stopped_at: float | None = None  # when it was first seen stopped; None if it runs
    progress: bool = False  # this incarnation has answered something that none had before
    worked: bool = False  # some incarnation has
    too_large: bool = False  # its state can't be kept twice, so it can't be restarted
    deaths: list[policy.Death] = field(default_factory=list)  # of all incarnations, oldest first
    may_come_at: float = 0.0  # a copy that failed to come is not started again before
    bar: float = 0.0  # seconds of the last such pause; 0 once it has arrived


@dataclass
class RecoveryState:
    """All copies of a run, by number. `handle` is its only way to change."""

    copies: list[CopyState]
    restarts: int  # of a copy in a row, without progress; 0: the first death ends the run
    timeouts: Timeouts  # for an answer to the driver
    time: float  # when it began
    restarted: int = 0  # units so far, also those that only moved; makes new episodes differ
    awake_at: float = 0.0  # the time of the last event of any kind
    lost_since: float | None = None  # since when results are lost and nobody is known to be dead
    message_bytes: int = 0  # of results since the last snapshots, which replaying would make again
    bytes_when_asked: int = 0  # of these, the ones that the snapshots under way make unnecessary
    snapshot: int = 0  # number of the snapshots under way; a death raises it, so they are void
    asking: bool = False  # snapshots are under way
    snapshot_at: float = -math.inf  # when the last were complete; -inf: they are due at once
    snapshot_seconds: float = 0.0  # the longest that a copy took for its own, this time
    away: list[tuple[int, ...]] = field(default_factory=list)  # restarted, nothing new since
    away_since: float = 0.0  # when the first of `away` did its last thing
    outages: Restarts = field(default_factory=Restarts)  # its seconds: of those that are over
    log: EventLog = field(default_factory=EventLog)

    def __post_init__(self) -> None:
        self.snapshot_at = self.awake_at = self.time

    def handle(self, event: ev.Event) -> list[ev.Instruction]:
        """Take note of an event, and say what to do. A failure in here shows what came before."""
        if event.time - self.awake_at > _DRIVER_AWAY:
            for copy in self.copies:
                copy.heard_at, copy.stopped_at = event.time, None
        self.awake_at = event.time
        try:
            rule: Callable[..., Any] = self._RULES.get(type(event), RecoveryState._on_unknown)
            instructions = list(rule(self, event) or ())
            self.log.note(event, instructions, (copy.name for copy in self.copies))
        except Exception as error:
            error.add_note(str(self.log))
            raise
        return instructions

    # what the rest of a backend may ask

    def restarts_until(self, time: float) -> Restarts:
        """How often copies were restarted, and for how long some were missing."""
        open_ = time - self.away_since if self.away else 0.0
        return self.outages._replace(seconds=self.outages.seconds + open_)

    @property
    def episodes(self) -> int:
        """A number for episodes that no incarnation before has begun."""
        return policy.EPISODES + self.restarted

    @property
    def here(self) -> list[int]:
        """Copies that have arrived."""
        return [i for i, copy in enumerate(self.copies) if copy.present and not copy.coming]

    def unit(self, copy: int) -> list[int]:
        """The copies that are there of those that restart with this one."""
        return [i for i in self.copies[copy].unit if self.copies[i].present]

    # requests and answers

    def _on_sent(self, event: ev.Sent) -> None:
        copy = self.copies[event.copy]
        if not copy.outstanding:
            copy.heard_at = event.time
        copy.outstanding.append(event.request)

    def _on_replied(self, event: ev.Replied) -> None:
        copy = self.copies[event.copy]
        copy.outstanding.popleft()
        copy.answered.add(event.request)
        copy.heard_at, self.lost_since = event.time, None
        if event.request is KEEP:
            self.snapshot_seconds = max(self.snapshot_seconds, event.seconds)
        self.message_bytes += event.nbytes
        if not event.replayed and not event.request.starts and not copy.progress:
            copy.progress = copy.worked = True
            self._end_outages(event.time)

    def _on_withdrawn(self, event: ev.Withdrawn) -> None:
        outstanding = self.copies[event.copy].outstanding
        while len(outstanding) > event.left:
            outstanding.pop()

    # deaths

    def _on_looked(self, event: ev.Looked) -> list[ev.Instruction] | None:
        now = event.time
        for i, copy in enumerate(self.copies):
            if i in event.waiting:
                copy.heard_at = now
            if copy.outstanding and now - copy.heard_at > self._patience(copy):
                return [self._late(i, event)]
            copy.stopped_at = (copy.stopped_at or now) if i in event.stopped else None
            if copy.stopped_at and now - copy.stopped_at > limits.STOPPED and self.restarts:
                how = f"was stopped for {limits.STOPPED:g} s"
                return [ev.Inspect(ev.End(i, how, killed=True))]
        return None

    def _patience(self, copy: CopyState) -> float:
        return self.timeouts.of(copy.outstanding[0], copy.answered)

    def _late(self, i: int, event: ev.Looked) -> ev.Instruction:
        """A copy is late. One that was never there would be late again."""
        copy, seconds = self.copies[i], self._patience(self.copies[i])
        asked = copy.outstanding[0]
        worked = any(self.copies[j].worked for j in copy.unit)
        if copy.coming or (self.restarts and (worked or not asked.starts)):
            return ev.Inspect(ev.End(i, f"did not answer `{asked}` within {seconds:g} s"))
        silent = [
            f"{other.name}, asked to `{other.outstanding[0]}`"
            for j, other in enumerate(self.copies)
            if other.outstanding and j not in event.waiting
        ]
        return ev.GiveUp(no_answer(seconds, silent), late=True)

    def _on_missed(self, event: ev.Missed) -> list[ev.Instruction]:
        if not (event.late or event.searched):
            return [ev.FindCause(event)]
        if self.restarts == 0:
            return [ev.GiveUp(event.sentence, event.late)]
        return [ev.Inspect(ev.End(event.copy, policy.because(event.sentence)))]

    def _on_nobody_died(self, event: ev.NobodyDied) -> list[ev.Instruction]:
        """A fault that was mended already, or Ray takes some 15 s to see that a node is lost."""
        if self.restarts == 0:
            return [ev.GiveUp(event.sentence)]
        if self.lost_since is None:
            self.lost_since = event.time
        if event.time - self.lost_since > limits.START:
            said = f"Results keep getting lost, but no copy has died: {event.sentence}"
            return [ev.GiveUp(said)]
        return [ev.Pause(_SEARCH_AGAIN)]

    def _on_died(self, event: ev.Died) -> list[ev.Instruction]:
        """Restart the units of the dead, or give up."""
        instructions: list[ev.Instruction] = []
        restart: list[int] = []
        pause, since = 0.0, event.time
        for end in event.ends:
            copy = self.copies[end.copy]
            if copy.coming:
                instructions += self._turn_away(event.time, end)
                continue
            verdict = self._judge(end)
            if isinstance(verdict, ev.GiveUp):
                return [*instructions, verdict]
            pause = max(pause, verdict)
            instructions.append(self._warning(end.copy))
            since = min(since, copy.heard_at if copy.outstanding else event.time)
            restart += [i for i in self.unit(end.copy) if i not in restart]
        if not restart:
            return instructions
        if not self.away:
            self.away_since = since
        self.away.append(tuple(restart))
        self.outages = self.outages._replace(times=self.outages.times + 1)
        return [*instructions, self._restart(restart, pause)]

    def _judge(self, end: ev.End) -> float | ev.GiveUp:
        """Seconds to wait before a copy starts again, or the end of the run."""
        copy = self.copies[end.copy]
        unit = [self.copies[i] for i in self.unit(end.copy)]
        progress = any(c.progress for c in unit)
        copy.deaths.append(policy.Death(end.how, end.killed, end.action, progress))
        may = self.restarts if any(c.worked for c in unit) else min(self.restarts, policy.AT_START)
        large = [member.name for member in unit if member.too_large]
        verdict = policy.decide(copy.deaths, 0 if large else may)
        if isinstance(verdict, policy.Restart):
            return verdict.pause
        said = f"{copy.name} {verdict.reason}"
        if large and self.restarts:
            said += f" {_TOO_LARGE.format(large[0])}"
            said += _OUT_OF_MEMORY if "SIGKILL" in end.how else ""
        return ev.GiveUp(said)

    def _warning(self, copy: int) -> ev.Warn:
        one = self.copies[copy]
        again = f"It is started again (restart {len(one.deaths)})."
        return ev.Warn(f"{one.name} {policy.words(one.deaths[-1])}. {again}")

    def _restart(self, copies: Sequence[int], pause: float = 0.0) -> ev.Restart:
        self._void_snapshots()
        self.restarted += 1
        self.lost_since = None
        return ev.Restart(tuple(copies), pause, self.episodes)

    def _on_started(self, event: ev.Started) -> None:
        for i in event.copies:
            copy = self.copies[i]
            copy.outstanding, copy.answered, copy.stopped_at = deque(), set(), None
            copy.progress = False

    def _on_start_failed(self, event: ev.StartFailed) -> list[ev.Instruction]:
        worked = any(self.copies[i].worked for i in self.unit(event.copy))
        if self.restarts == 0 or (event.late and not worked):
            return [ev.GiveUp(event.sentence, event.late)]
        verdict = self._judge(ev.End(event.copy, event.how, killed=True))
        if isinstance(verdict, ev.GiveUp):
            return [verdict]
        return [self._warning(event.copy), ev.Pause(verdict)]

    def _on_arrived(self, event: ev.Arrived) -> list[ev.Instruction] | None:
        copy = self.copies[event.copy]
        copy.name, came = event.name, copy.coming
        copy.coming, copy.bar = False, 0.0
        return [ev.Warn(f"{copy.name} has joined.")] if came else None

    def _on_explained(self, event: ev.Explained) -> list[ev.Instruction] | None:
        copy = self.copies[event.copy]
        death = copy.deaths[event.death]
        how = event.how or death.how
        copy.deaths[event.death] = death._replace(how=how, killed=False, action=event.action)
        verdict = policy.decide(copy.deaths[: event.death + 1], self.restarts)
        if isinstance(verdict, policy.Restart):
            return None
        return [ev.GiveUp(f"{event.name} {verdict.reason}")]

    # copies of a range

    def _on_coming(self, event: ev.Coming) -> None:
        copy = self.copies[event.copy]
        copy.present = copy.coming = True
        self.restarted += 1

    def _turn_away(self, now: float, end: ev.End) -> list[ev.Instruction]:
        copy = self.copies[end.copy]
        copy.bar = min(_LONGEST_BAR, 2 * copy.bar or _FIRST_BAR)
        copy.may_come_at = now + copy.bar
        copy.present = copy.coming = False
        copy.outstanding.clear()
        said = f"{copy.name} could not start: it {end.how}. Next try in {copy.bar:g} s."
        return [ev.Warn(said), ev.TurnAway(end.copy)]

    def _on_left(self, event: ev.Left) -> list[ev.Instruction]:
        copy = self.copies[event.copy]
        copy.present = False
        copy.outstanding.clear()
        self._void_snapshots()
        return [ev.Warn(f"{copy.name} has left: its node has no resources for it.")]

    def _on_moved(self, event: ev.Moved) -> list[ev.Instruction]:
        names = ", ".join(self.copies[i].name for i in event.copies)
        said = f"A node has resources again: moving {names}."
        return [ev.Warn(said), self._restart(event.copies)]

    # snapshots

    def _on_round_ended(self, event: ev.RoundEnded) -> list[ev.Instruction] | None:
        if self.restarts == 0:
            return None
        wait = event.now or policy.is_urgent(self.unsaved(event.time))
        if wait:
            self._void_snapshots()
        if self.asking or not policy.is_due(self.unsaved(event.time)):
            return None
        self.asking, self.snapshot_seconds = True, 0.0
        self.bytes_when_asked = self.message_bytes
        return [ev.TakeSnapshots(self.snapshot, wait)]

    def unsaved(self, time: float) -> policy.Unsaved:
        """What a death now would cost to make again."""
        return policy.Unsaved(self.message_bytes, time - self.snapshot_at, self.snapshot_seconds)

    def _on_snapshots_taken(self, event: ev.SnapshotsTaken) -> None:
        for i in event.too_large:
            self.copies[i].too_large = True
        self.asking, self.snapshot_at = False, event.time
        self.message_bytes -= self.bytes_when_asked
        self.snapshot_seconds += event.seconds

    def _on_snapshots_failed(self, _: ev.SnapshotsFailed) -> None:
        self._void_snapshots()

    def _on_unknown(self, event: Any) -> NoReturn:
        raise TypeError(f"Recovery has no rule for the event {event!r}.")

    def _void_snapshots(self) -> None:
        """Those under way no longer fit together: take new ones as soon as possible."""
        self.snapshot += 1
        self.asking = False
        self.snapshot_at, self.snapshot_seconds = -math.inf, 0.0

    def _end_outages(self, time: float) -> None:
        """A restarted unit is back once one of its copies has done something new."""
        if self.away:
            back = {i for i, copy in enumerate(self.copies) if copy.progress}
            self.away = [unit for unit in self.away if not back & {*unit}]
            if not self.away:
                times, seconds = self.outages
                self.outages = Restarts(times, seconds + time - self.away_since)

    _RULES: ClassVar[dict[type, Callable[..., Sequence[ev.Instruction] | None]]] = {
        ev.Sent: _on_sent,
        ev.Replied: _on_replied,
        ev.Withdrawn: _on_withdrawn,
        ev.Looked: _on_looked,
        ev.Missed: _on_missed,
        ev.NobodyDied: _on_nobody_died,
        ev.Died: _on_died,
        ev.Started: _on_started,
        ev.StartFailed: _on_start_failed,
        ev.Arrived: _on_arrived,
        ev.Explained: _on_explained,
        ev.Coming: _on_coming,
        ev.Left: _on_left,
        ev.Moved: _on_moved,
        ev.RoundEnded: _on_round_ended,
        ev.SnapshotsTaken: _on_snapshots_taken,
        ev.SnapshotsFailed: _on_snapshots_failed,
    }
