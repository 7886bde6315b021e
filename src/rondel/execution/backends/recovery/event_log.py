"""The history of a run's copies in words: what happened, when, and what was decided.

It is shown when a run fails. Requests, answers and looks at a healthy run are too many to be noted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rondel.execution.backends.recovery import events as ev
from rondel.execution.backends.recovery.policy import words

_MOST = 200  # notes: the newest


class Note(NamedTuple):
    """One event, or several with the same words, one after the other."""

    time: float  # of the last
    happened: str
    decided: str
    times: int = 1

    def __str__(self) -> str:
        often = f" ({self.times} times)" if self.times > 1 else ""
        return f"{self.happened}{often}" + (f" -> {self.decided}" if self.decided else "")


@dataclass
class EventLog:
    """The last events, each with the instructions that followed."""

    notes: deque[Note] = field(default_factory=lambda: deque(maxlen=_MOST))
    troubles: int = 0  # events that were answered by more than a search for their cause

    def note(
        self, event: ev.Event, instructions: Sequence[ev.Instruction], names: Iterable[str]
    ) -> None:
        """Keep an event, unless it is one of the frequent ones."""
        if isinstance(event, ev.Sent | ev.Replied | ev.RoundEnded):
            return
        if isinstance(event, ev.Looked) and not instructions:
            return
        names, searches = [*names], (ev.FindCause, ev.Inspect)
        self.troubles += any(not isinstance(one, searches) for one in instructions)
        decided = "; ".join(filter(None, (_decided(one, names) for one in instructions)))
        new = Note(event.time, _happened(event, names), decided)
        if self.notes and self.notes[-1][1:3] == new[1:3]:
            new = new._replace(times=self.notes.pop().times + 1)
        self.notes.append(new)

    def __str__(self) -> str:
        end = self.notes[-1].time if self.notes else 0.0
        lines = [f"{note.time - end:9.1f} s  {note}" for note in self.notes]
        return "\n".join(["What happened to copies before this run ended:", *lines])


def _happened(event: ev.Event, names: Sequence[str]) -> str:
    match event:
        case ev.Withdrawn(_, copy):
            return f"{names[copy]} can't answer requests that wait for lost results"
        case ev.Looked():
            return "No answer came for a while"
        case ev.Missed(_, copy, sentence):
            return f"{names[copy]} missed another copy: {sentence}"
        case ev.NobodyDied(_, sentence):
            return f"Results are lost: {sentence}"
        case ev.Died(_, ends):
            return "; ".join(f"{names[end.copy]} {words(end)}" for end in ends)
        case ev.Started(_, copies):
            return f"Started {_list(copies, names)}"
        case ev.StartFailed(_, copy, how):
            return f"{names[copy]} {how}"
        case ev.Arrived(_, _, name):
            return f"{name} is there"
        case ev.Explained(_, _, name, _, action, how):
            return f"{name} {how or 'ended'} in {action}" if action else f"{name} {how or 'ended'}"
        case ev.Coming(_, copy):
            return f"{names[copy]} is coming"
        case ev.Left(_, copy):
            return f"{names[copy]} has left"
        case ev.Moved(_, copies):
            return f"There is room again for {_list(copies, names)}"
        case ev.SnapshotsTaken(_, too_large):
            large = f", but {_list(too_large, names)} had too much" if too_large else ""
            return f"Snapshots were taken{large}"
        case ev.SnapshotsFailed():
            return "Snapshots were lost on their way to the driver"
    raise TypeError(f"There are no words for {event!r}.")


def _decided(instruction: ev.Instruction, names: Sequence[str]) -> str:
    match instruction:
        case ev.Restart(copies, pause):
            return f"restart {_list(copies, names)}{_after(pause)}"
        case ev.Pause(seconds):
            return f"try again{_after(seconds)}"
        case ev.FindCause():
            return "look for a dead copy"
        case ev.Inspect(end):
            return f"replace {names[end.copy]}, which {end.how}"
        case ev.TurnAway(copy):
            return f"go on without {names[copy]}"
        case ev.GiveUp():
            return "end the run"
    return ""  # a warning says what its event says


def _after(seconds: float) -> str:
    return f" after {seconds:g} s" if seconds else ""


def _list(copies: Collection[int], names: Sequence[str]) -> str:
    """Copies without their processes, which are about to be others."""
    return ", ".join(names[i].partition(" (")[0] for i in copies)
