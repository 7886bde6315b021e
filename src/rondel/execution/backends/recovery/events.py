"""Events of recovery and the instructions that answer them: plain values.

Copies are numbers, in the order of the plan. Every event carries its time, in seconds of one
monotonic clock: `RecoveryState` never reads a clock.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple, Protocol, TypeAlias

from rondel.execution.requests import Request


class Event(Protocol):
    """What all events have."""

    @property
    def time(self) -> float: ...


Instruction: TypeAlias = tuple[Any, ...]  # one of the last classes here


class Sent(NamedTuple):
    """A request has left for a copy."""

    time: float
    copy: int
    request: Request


class Replied(NamedTuple):
    """A copy has answered the oldest request that it was sent."""

    time: float
    copy: int
    request: Request
    replayed: bool = False  # it had been answered before, by an incarnation that is gone
    nbytes: int = 0  # of the results
    seconds: float = 0.0  # that a snapshot took


class Withdrawn(NamedTuple):
    """All but the oldest requests of a living copy can't be answered, and will be sent again."""

    time: float
    copy: int
    left: int  # requests that stay


class Looked(NamedTuple):
    """The driver has waited for a while without an answer."""

    time: float
    stopped: Collection[int] = ()  # copies that someone has stopped, as with SIGSTOP
    waiting: Collection[int] = ()  # copies that wait for another's result: those are not late


class End(NamedTuple):
    """How one copy ended."""

    copy: int
    how: str  # for people: "was killed by SIGKILL"
    killed: bool = False  # by the system, an operator or the scheduler, not by its own code
    action: str = ""  # what its environment was doing: "step(3)"; "" if unknown


class Died(NamedTuple):
    """Copies have died, or must be replaced; those that died together come in one event."""

    time: float
    ends: tuple[End, ...]


class Missed(NamedTuple):
    """A copy failed because another one, which it has a line to, was gone or late."""

    time: float
    copy: int
    sentence: str
    late: bool  # the other one is there, but does not answer
    searched: bool = False  # the backend has looked for the dead one, and found none


class NobodyDied(NamedTuple):
    """Results are lost, and no copy is known to be dead or able to make them again."""

    time: float
    sentence: str


class Started(NamedTuple):
    """New incarnations of these copies begin: nothing that was sent to the old ones counts."""

    time: float
    copies: Collection[int]


class StartFailed(NamedTuple):
    """A copy died or hung before it was there; those that start with it start again too."""

    time: float
    copy: int
    how: str
    late: bool
    sentence: str  # if the run ends for it


class Arrived(NamedTuple):
    """A new incarnation is there, and known by this name."""

    time: float
    copy: int
    name: str


class Explained(NamedTuple):
    """What a dead copy was doing, learned from what it left behind, after it was replaced."""

    time: float
    copy: int
    name: str  # of the incarnation that died
    death: int  # which one of the copy's
    action: str
    how: str = ""  # if it ended by itself: "crashed"


class Coming(NamedTuple):
    """A copy of a range has been started; the run goes on without it until it has arrived."""

    time: float
    copy: int


class Left(NamedTuple):
    """A copy of a range was ended because its node has no room for it."""

    time: float
    copy: int


class Moved(NamedTuple):
    """Healthy copies are to be started again elsewhere."""

    time: float
    copies: tuple[int, ...]


class RoundEnded(NamedTuple):
    """The run is between two rounds, the only place where snapshots fit together."""

    time: float
    now: bool = False  # snapshots are wanted at once


class SnapshotsTaken(NamedTuple):
    """Snapshots of all copies are kept; older messages are forgotten."""

    time: float
    too_large: Collection[int] = ()  # copies that gave none
    seconds: float = 0.0  # that it took to bring them to the driver


class SnapshotsFailed(NamedTuple):
    """Snapshots were lost on their way: logs still hold all messages."""

    time: float


class Warn(NamedTuple):
    """Log a warning."""

    text: str


class Restart(NamedTuple):
    """End these copies, wait, and start them again with their logs replayed."""

    copies: tuple[int, ...]
    pause: float
    episodes: int  # the number of the new episodes that environments without a state begin


class Pause(NamedTuple):
    """Wait, then repeat what has failed: a start, or requests whose results are lost."""

    seconds: float


class FindCause(NamedTuple):
    """Look for a dead copy: report `Died`, or else the same `Missed` again, as searched."""

    missed: Missed


class Inspect(NamedTuple):
    """Find out what a copy that must be replaced is doing, and report that it `Died`."""

    end: End


class TurnAway(NamedTuple):
    """End a copy that was coming; the run goes on without it."""

    copy: int


class TakeSnapshots(NamedTuple):
    """Ask all copies for snapshots."""

    number: int  # they are void once `RecoveryState.snapshot` is another
    wait: bool  # the run must not go on before they are kept


class GiveUp(NamedTuple):
    """End the run with this sentence."""

    sentence: str
    late: bool = False  # a copy hangs, rather than died
