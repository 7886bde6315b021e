"""How often copies were started again, and for how long some of them were not there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from rondel.execution.backends.protocol import Restarts
from rondel.execution.backends.recovery.request_log import RequestLog


class Downtime:
    """Of all copies of a run. Times in which several are not there count once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times, self._seconds = 0, 0.0
        self._away: list[
            list[RequestLog]
        ] = []  # of those who were started again and did nothing yet
        self._since = 0.0

    def begin(self, unit: Iterable[RequestLog], since: float) -> None:
        """These were started again together; nothing came of them since then."""
        if not self._away:
            self._since = since
        self._away.append(list(unit))
        self._times += 1

    def look(self) -> None:
        """Who has done something new is there again."""
        if self._away:
            self._away = [unit for unit in self._away if not any(j.progress for j in unit)]
            if not self._away:
                self._seconds += self._clock() - self._since

    def total(self) -> Restarts:
        """All of them so far."""
        self.look()
        open_ = self._clock() - self._since if self._away else 0.0
        return Restarts(self._times, self._seconds + open_)
