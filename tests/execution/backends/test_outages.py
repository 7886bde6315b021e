"""How long copies were away: by a clock that a test turns."""

from __future__ import annotations

import pytest

from rondel.execution.backends.protocol import Restarts
from rondel.execution.backends.recovery.downtime import Downtime
from rondel.execution.backends.recovery.request_log import RequestLog

pytestmark = pytest.mark.fault


def test_times_in_which_several_are_away_count_once() -> None:
    now = [10.0]
    outages = Downtime(lambda: now[0])
    assert outages.total() == Restarts(0, 0.0)
    one, other, env = (RequestLog(is_kept=True) for _ in range(3))
    outages.begin([one, env], since=8.0)  # an environment says nothing to the driver by itself
    now[0] = 11.0
    outages.begin([other], since=11.0)
    assert outages.total() == Restarts(2, 3.0)
    now[0], one.progress = 12.0, True
    outages.look()
    now[0], other.progress = 14.0, True
    outages.look()
    now[0] = 20.0
    assert outages.total() == Restarts(2, 6.0)
    other.progress = False
    outages.begin([other], since=20.0)
    now[0], other.progress = 21.0, True
    assert outages.total() == Restarts(3, 7.0)
