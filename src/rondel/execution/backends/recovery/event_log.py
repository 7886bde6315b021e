"""The history of a run's copies in words: what happened, when, and what was decided.

It is shown when a run fails. Requests, answers and looks at a healthy run are too many to be noted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rondel.execution.backends.recovery import events as ev
from rondel.execution.backends.recovery.policy import words

_MOST = 200  # notes: the newest
_FREQUENT, _USUAL = {ev.Sent, ev.Replied, ev.RoundEnded}, {ev.Looked, ev.SnapshotsTaken}
_HAPPENED: dict[type, str] = {
    ev.Withdrawn: "{copy} can't answer requests that wait for lost results",
    ev.Looked: "No answer came for a while",
    ev.Missed: "{copy} missed another copy: {sentence}",
    ev.NobodyDied: "Results are lost: {sentence}",
    ev.Died: "{ends}",
    ev.Started: "Started {copies}",
    ev.StartFailed: "{copy} {how}",
    ev.Arrived: "{name} is there",
    ev.Explained: "{name} {how}{action}",
    ev.Coming: "{copy} is coming",
    ev.Left: "{copy} has left",
    ev.Moved: "There is room again for {copies}",
    ev.SnapshotsTaken: "Snapshots were taken; too large: {too_large}",
    ev.SnapshotsFailed: "Snapshots were lost on their way to the driver",
}
_DECIDED: dict[type, str] = {  # a warning says what its event says
    ev.Restart: "restart {copies}",
    ev.Pause: "try again",
    ev.FindCause: "look for a dead copy",
    ev.Inspect: "replace it",
    ev.TurnAway: "go on without {copy}",
    ev.GiveUp: "end the run",
}


@dataclass
class EventLog:
    """The last events, each with the instructions that followed."""

    notes: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=_MOST))
    troubles: int = 0  # events that were answered by more than a search for their cause

    def note(
        self, event: ev.Event, instructions: Sequence[ev.Instruction], names: Iterable[str]
    ) -> None:
        """Keep an event, unless it is one of the frequent ones."""
        if type(event) in _FREQUENT or (
            type(event) in _USUAL and not instructions and not getattr(event, "too_large", ())
        ):
            return
        names, searches = [*names], (ev.FindCause, ev.Inspect)
        self.troubles += any(not isinstance(one, searches) for one in instructions)
        said = [_in_words(event, _HAPPENED[type(event)], names)]
        known = (one for one in instructions if type(one) in _DECIDED)
        said += [_in_words(one, _DECIDED[type(one)], names) for one in known]
        if self.notes and self.notes[-1][1] == " -> ".join(said):
            self.notes.pop()  # of the same again and again, the last
        self.notes.append((event.time, " -> ".join(said)))

    def __str__(self) -> str:
        end = self.notes[-1][0] if self.notes else 0.0
        lines = [f"{time - end:9.1f} s  {said}" for time, said in self.notes]
        return "\n".join(["What happened to copies before this run ended:", *lines])


def _in_words(said: Any, template: str, names: Sequence[str]) -> str:
    """An event or instruction by its template: copies by name, and only what is known."""

    def field(name: str, value: Any) -> str:
        match name:
            case "copy":
                return names[value]
            case "ends":
                return "; ".join(f"{names[end.copy]} {words(end)}" for end in value)
            case "copies" | "too_large":  # without their processes, which are about to be others
                return ", ".join(names[i].partition(" (")[0] for i in value)
            case "action":
                return f" in {value}" if value else ""
        return str(value) or "ended"

    return template.format(**{name: field(name, value) for name, value in said._asdict().items()})
