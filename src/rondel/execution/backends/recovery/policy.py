"""What to do when a copy dies or hangs, and when to keep what copies are: decided, not done.

Backends tell what happened and obey. All of it is pure, so that a table of cases can test it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_SAME = 3  # deaths at one action, with nothing done in between, that are no accident
_SAME_EVER = 10  # deaths at one step's action, whatever was done in between
AT_START = 2  # restarts of a copy that has never done anything yet
AGAIN = 1 << 20  # episodes that begin after a death are others than any that began before
_RESET = "reset"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0  # seconds


class Death(NamedTuple):
    """One end of a copy that nobody asked for."""

    how: str  # for people: "was killed by SIGKILL", "took no step within 30 s"
    killed: bool  # from outside: by the system, an operator, the scheduler
    action: str  # what its environment did: "step(3)", "reset(seed=3)"; "" if that's not known
    progress: bool  # did it answer anything new since it was last started?


class Restart(NamedTuple):
    """Start the copy again after so many seconds."""

    pause: float


class Stop(NamedTuple):
    """End the run, with this sentence behind the name of the copy."""

    reason: str


def decide(deaths: Sequence[Death], restarts: int) -> Restart | Stop:
    """What to do after a copy's last death; `restarts` may follow each other without progress."""
    last = deaths[-1]
    if restarts == 0:
        return Stop(f"{told(last)}.")
    idle = _in_a_row(deaths)
    if last.action and not last.killed:
        same_idle = _same(deaths[-idle:], last)
        if _call(last) == _RESET:  # seeds differ, so that with progress in between it may be luck
            if same_idle >= _SAME:
                times = _nth(same_idle)
                return Stop(f"{told(last)}, for the {times} time in a row: mend the environment.")
        elif same_idle >= _SAME or _same(deaths, last) >= _SAME_EVER:
            times = _nth(max(same_idle, _same(deaths, last)))
            return Stop(
                f"{told(last)}, for the {times} time in a row at this very action: mend the "
                "environment, or keep it from that action."
            )
    if idle > restarts:
        named = [told(death) for death in deaths[-idle:-1] if told(death) != death.how]
        # on Ray what the last one did is not known yet, but what those before it did
        before = f" The time before, it {named[-1]}." if named and not last.action else ""
        return Stop(
            f"{told(last)}, and was started again {restarts} times without getting any further."
            f"{before} What was saved last can be resumed; more restarts would be allowed by "
            "--restarts."
        )
    return Restart(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (idle - 1)) if idle > 1 else 0.0)


def _in_a_row(deaths: Sequence[Death]) -> int:
    """Deaths at the end of the list between which nothing new was answered."""
    n = 1
    while n < len(deaths) and not deaths[-n].progress:
        n += 1
    return n


def told(death: Death) -> str:
    """How a copy ended, and in what, for people; who was killed did nothing to be blamed for."""
    return f"{death.how} in {death.action}" if death.action and not death.killed else death.how


def because(error: BaseException) -> str:
    """How a copy ended that missed another one: what it said of that, without the advice."""
    return f"stopped, because {str(error).partition(': ')[0]}".rstrip(".")


def _call(death: Death) -> str:
    """What counts as the same: an action, or any reset, since no two have the same seed."""
    return _RESET if death.action.startswith(f"{_RESET}(") else death.action


def _same(deaths: Sequence[Death], last: Death) -> int:
    """How many deaths at the end of the list were at the action of the last."""
    n = 0
    while n < len(deaths) and _call(deaths[-1 - n]) == _call(last) and not deaths[-1 - n].killed:
        n += 1
    return n


def _nth(n: int) -> str:
    return {3: "third"}.get(n, f"{n}th")


class Keeping(NamedTuple):
    """What is known about the messages and states that are kept."""

    bytes: int  # of messages since the last time
    seconds: float  # since then
    cost: float  # seconds that the last time took; 0 before the first


# Short journals are replayed sooner; but each time costs a small run some 2 ms, of all its copies.
_OFTEN = 1.0  # seconds between two times, at the least
_SHARE = 200  # a time that took c seconds is followed by 200 c without one: 0.5 %
_MANY_BYTES = 32 * 2**20  # of kept messages: from here on states are kept for 2 % of the time
_LARGER_SHARE = 50
MOST_BYTES = 256 * 2**20  # at this bound they are kept at once


def is_due(keeping: Keeping) -> bool:
    """Should the states of all copies be kept now, so that their messages can be forgotten?"""
    if keeping.bytes >= MOST_BYTES:
        return True
    share = _LARGER_SHARE if keeping.bytes >= _MANY_BYTES else _SHARE
    return keeping.seconds >= max(_OFTEN, share * keeping.cost)


def is_urgent(keeping: Keeping) -> bool:
    """Must the run wait until they are?"""
    return keeping.bytes >= 2 * MOST_BYTES
