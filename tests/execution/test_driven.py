"""The story of a round: what environments outside JAX say, written down where it stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rondel.execution.driven import Story
from rondel.types import Step


def said(value: float, lanes: int, parts: bool) -> Step:
    """What so many lanes say: all of it is `value`."""
    obs: Any = np.full((lanes, 3), value, np.float32)
    if parts:
        obs = {"near": obs, "far": np.full((lanes, 2), value, np.float32)}
    real, flag = np.full(lanes, value, np.float32), np.full(lanes, value > 0)
    return Step(obs, real, flag, flag, flag, real, np.full(lanes, int(value), np.int32))


@pytest.mark.parametrize("parts", [False, True])
def test_a_story_keeps_each_step_of_each_group_in_its_place(parts: bool) -> None:
    story = Story(2, said(0.0, 4, parts))
    story.write(1, slice(0, 2), said(1.0, 2, parts))
    story.write(1, slice(2, 4), said(2.0, 2, parts))
    story.write(2, slice(None), said(3.0, 4, parts))
    np.testing.assert_array_equal(story.steps.reward, [[0, 0, 0, 0], [1, 1, 2, 2], [3, 3, 3, 3]])
    obs, first = story.seen(1)
    near = obs["near"] if parts else obs
    np.testing.assert_array_equal(near[:, 0], [1, 1, 2, 2])
    np.testing.assert_array_equal(first, [True] * 4)
    assert story.bytes_to_see == 4 * 4 * (5 if parts else 3)


def test_a_story_does_not_depend_on_memory_that_an_environment_writes_again() -> None:
    step = said(1.0, 4, parts=False)
    story = Story(1, said(0.0, 4, parts=False))
    story.write(1, slice(None), step)
    step.obs[:] = step.reward[:] = 9.0  # type: ignore[index]
    last = story.last()
    np.testing.assert_array_equal(last.obs, np.ones((4, 3)))
    np.testing.assert_array_equal(last.reward, np.ones(4))
    story.steps.obs[:] = 7.0  # type: ignore[index]
    np.testing.assert_array_equal(last.obs, np.ones((4, 3)))
