"""What is found of an environment that has taken its process along."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest

from envs.strange import Plain
from rondel.envs.registry import make
from rondel.execution.hostenv import crash_record
from rondel.execution.hostenv.host_envs import HostEnvs
from rondel.execution.hostenv.partition import Group
from rondel.execution.hostenv.seeds import Purpose, lane_seeds

pytestmark = pytest.mark.fault


@pytest.fixture
def page() -> Any:
    fd = crash_record.new_page()
    return fd, mmap.mmap(fd, crash_record.SIZE)


def test_what_goes_on_is_in_the_page_and_what_is_over_is_not(page: Any) -> None:
    fd, seen = page
    recorder = crash_record.Recorder(fd)
    assert crash_record.read(seen) == ""
    recorder.enter(np.array([3, 4]))
    assert crash_record.read(seen) == "step([3, 4])"
    recorder.lane[0] = 1
    assert crash_record.read(seen) == "step(4)"
    recorder.lane[0] = -2 - 1
    assert crash_record.read(seen) == "reset()"
    recorder.leave()
    assert crash_record.read(seen) == ""
    with recorder.resetting(np.array([7, 8])):
        assert crash_record.read(seen) == "reset(seed=[7, 8])"
        recorder.lane[0] = 0
        assert crash_record.read(seen) == "reset(seed=7)"
    assert crash_record.read(seen) == ""
    recorder.enter(np.array([5, 6]))
    assert crash_record.read(seen) == "step([5, 6])"
    recorder.leave()
    with recorder.resetting(np.zeros(1000)):  # more than the page holds
        assert crash_record.read(seen) == "reset(…)"


def test_lanes_tell_a_reset_from_the_action_before(page: Any) -> None:
    """Each environment looks at what would be said if it died now."""
    fd, seen = page
    said: list[str] = []

    class Short(Plain):
        """Episodes of one step."""

        def reset(self, **asked: Any) -> Any:
            said.append(crash_record.read(seen))
            return super().reset(**asked)

        def step(self, action: Any) -> Any:
            said.append(crash_record.read(seen))
            obs, reward, _, _, info = super().step(action)
            return obs, reward, True, False, info

    lanes = HostEnvs(make(Short), 0, [Group(0, 0, 2)])
    lanes.record(crash_record.Recorder(fd))
    said.clear()
    lanes.reset(0, 0)
    for _ in range(3):
        lanes.step(0, np.array([1, 0]))
    one, two = lane_seeds(0, Purpose.ENV, 2, 0)
    steps = ["step(1)", "step(0)"]
    assert said == [
        f"reset(seed={one})",
        f"reset(seed={two})",
        *steps,
        "reset()",
        "reset()",
        *steps,
    ]
    assert crash_record.read(seen) == ""
