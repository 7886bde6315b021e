"""Whether a dead copy is started again, and when snapshots are due: pure functions.

`RecoveryState` asks them; the numbers below say how patient a run is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rondel.execution.backends.recovery.events import End
from rondel.formatting import plural

_SAME = 3  # deaths at one action without progress in between: no accident
_SAME_EVER = 10  # deaths at one step's action, with any progress in between
AT_START = 2  # restarts of a copy that has never answered anything
EPISODES = 1 << 20  # episodes that begin after a restart are numbered from here: no run has as many
_RESET = "reset"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0  # seconds


class Death(NamedTuple):
    """How an incarnation of a copy ended."""

    how: str  # for people: "was killed by SIGKILL", "did not answer `step` within 30 s"
    killed: bool  # from outside: by the system, an operator, the scheduler
    action: str  # what its environment was doing: "step(3)", "reset(seed=3)"; "" if unknown
    progress: bool  # it had answered something new


class Restart(NamedTuple):
    """Start the copy again after `pause` seconds."""

    pause: float


class Stop(NamedTuple):
    """End the run. `reason` follows the name of the copy."""

    reason: str


def decide(deaths: Sequence[Death], restarts: int) -> Restart | Stop:
    """What to do after the last of a copy's deaths; `restarts` are allowed without progress."""
    last = deaths[-1]
    if restarts == 0:
        return Stop(f"{words(last)}.")
    idle = _in_a_row(deaths)
    if last.action and not last.killed:
        same_idle = _same(deaths[-idle:], last)
        if _call(last) == _RESET:  # seeds differ, so that with progress in between it may be luck
            if same_idle >= _SAME:
                times = _nth(same_idle)
                return Stop(f"{words(last)}, for the {times} time in a row. Fix the environment.")
        elif same_idle >= _SAME or _same(deaths, last) >= _SAME_EVER:
            times = _nth(max(same_idle, _same(deaths, last)))
            return Stop(
                f"{words(last)}, for the {times} time in a row at this action. Fix the "
                "environment, or mask the action."
            )
    if idle > restarts:
        named = [words(death) for death in deaths[-idle:-1] if words(death) != death.how]
        # on Ray the action of the last one is not known yet, but those before it are
        before = f" Before that, it {named[-1]}." if named and not last.action else ""
        return Stop(
            f"{words(last)}, and made no progress in {plural(restarts, 'restart')}."
            f"{before} Resume from the last checkpoint, or allow more with --restarts."
        )
    return Restart(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (idle - 1)) if idle > 1 else 0.0)


def _in_a_row(deaths: Sequence[Death]) -> int:
    """Deaths at the end of the list between which nothing new was answered."""
    n = 1
    while n < len(deaths) and not deaths[-n].progress:
        n += 1
    return n


def words(death: Death | End) -> str:
    """How a copy ended, with the action of its environment, unless it was killed from outside."""
    return f"{death.how} in {death.action}" if death.action and not death.killed else death.how


def because(sentence: str) -> str:
    """How a copy ended that missed another one, given its error: without the error's advice."""
    return f"stopped, because {sentence.partition(': ')[0]}".rstrip(".")


def _call(death: Death) -> str:
    """An action, or "reset" for any reset, as no two have the same seed."""
    return _RESET if death.action.startswith(f"{_RESET}(") else death.action


def _same(deaths: Sequence[Death], last: Death) -> int:
    """Deaths at the end of the list that were at the action of the last."""
    n = 0
    while n < len(deaths) and _call(deaths[-1 - n]) == _call(last) and not deaths[-1 - n].killed:
        n += 1
    return n


def _nth(n: int) -> str:
    return {3: "third"}.get(n, f"{n}th")


class Unsaved(NamedTuple):
    """What has happened since the last snapshots."""

    bytes: int  # of messages
    seconds: float
    cost: float  # seconds that the last snapshots took; 0 before the first


# Short logs are replayed faster; but snapshots cost a small run some 2 ms, of all its copies.
_OFTEN = 1.0  # seconds between snapshots, at least
_SHARE = 200  # after snapshots of c seconds come 200 c seconds without any: 0.5 %
_MANY_BYTES = 32 * 2**20  # of messages: from here on snapshots may take 2 % of the time
_LARGER_SHARE = 50
MOST_BYTES = 256 * 2**20  # of messages: snapshots are due at once


def is_due(unsaved: Unsaved) -> bool:
    """Should all copies give snapshots now, so that older messages can be forgotten?"""
    if unsaved.bytes >= MOST_BYTES:
        return True
    share = _LARGER_SHARE if unsaved.bytes >= _MANY_BYTES else _SHARE
    return unsaved.seconds >= max(_OFTEN, share * unsaved.cost)


def is_urgent(unsaved: Unsaved) -> bool:
    """Must the run wait until it has snapshots?"""
    return unsaved.bytes >= 2 * MOST_BYTES
