"""What connects a backend with its `RecoveryState`: events in, instructions obeyed.

Here are the clock, the log and the promises of snapshots; the decisions are in `state`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NoReturn

from rondel.execution.backends.protocol import Lost, Restarts, Unresponsive
from rondel.execution.backends.recovery import events as ev
from rondel.execution.backends.recovery.state import CopyState, RecoveryState
from rondel.execution.telemetry.timeouts import Timeouts
from rondel.plan.plan import Plan, copy_name, failure_units, has_separate_envs

_MOST_STATE = 2 * 2**30  # bytes of a copy's state; a larger one is not kept twice
_log = logging.getLogger("rondel")


class Recovery:
    """The recovery of one backend.

    `obey` has a function for each kind of instruction that may come. `end` is called with the error
    that ends the run, and raises it. `absent` copies are of a range, and come later.
    """

    def __init__(
        self,
        plan: Plan,
        restarts: int,
        timeouts: Timeouts,
        obey: Mapping[type, Callable[[Any], None]],
        end: Callable[[BaseException], NoReturn],
        absent: Collection[tuple[int, int]] = (),
    ) -> None:
        places = [(p, c) for p, piece in enumerate(plan.pieces) for c in range(piece.copies)]
        units = {place: unit for unit in failure_units(plan) for place in unit}
        copies = [
            CopyState(
                name=copy_name(plan, *place),
                unit=tuple(map(places.index, units[place])),
                present=place not in absent,
                has_snapshots=restarts > 0 and not (has_separate_envs(plan) and place[0] == 0),
            )
            for place in places
        ]
        self.state = RecoveryState(copies, restarts, timeouts, time.monotonic())
        self._obey, self._end = obey, end
        self._asked: list[tuple[Any, Any, Any]] = []  # copies, with promises of flag and state
        self._number = -1  # of these snapshots

    def report(self, kind: Callable[..., ev.Event], *what: Any, **more: Any) -> None:
        """Something has happened just now: obey what the state says to it."""
        for instruction in self.state.handle(kind(time.monotonic(), *what, **more)):
            if isinstance(instruction, ev.Warn):
                _log.warning("%s", instruction.text)
            elif isinstance(instruction, ev.Pause):
                time.sleep(instruction.seconds)
            elif isinstance(instruction, ev.GiveUp):
                if self.state.log.troubles > 1:  # one says no more than the sentence
                    _log.warning("%s", self.state.log)
                self._end((Unresponsive if instruction.late else Lost)(instruction.sentence))
            else:
                self._obey[type(instruction)](instruction)

    def restarts(self) -> Restarts:
        """Of all copies, so far."""
        return self.state.restarts_until(time.monotonic())

    def ask_for_snapshots(self, number: int, copies: Iterable[Any]) -> None:
        """Ask all copies for their states, as `TakeSnapshots` says."""
        asked = [(copy, *copy.keep(_MOST_STATE)) for copy in copies if copy.log.has_snapshots]
        self._asked, self._number = asked, number

    @property
    def snapshots(self) -> list[tuple[Any, Any, Any]]:
        """Those under way: copies, with promises of "small enough" and of the state."""
        return self._asked if self.state.snapshot == self._number else []

    def keep_snapshots(self, flags: Iterable[Any], seconds: float = 0.0) -> None:
        """All are there: forget what came before them."""
        too_large = []
        for (copy, _, state), flag in zip(self._asked, flags, strict=True):
            if flag:
                copy.log.keep(state)
            else:
                copy.log.give_up()
                too_large.append(copy.index)
        self._asked = []
        self.report(ev.SnapshotsTaken, too_large, seconds)

    def forget(self) -> None:
        """The run is closed: promises and copies hold each other."""
        self._asked = []
