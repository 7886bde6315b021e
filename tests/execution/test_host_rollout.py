"""The story of a round: what environments outside JAX say, written down where it stays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rondel.errors import RondelError
from rondel.execution.workers.host_rollout import RolloutBuffer
from rondel.types import Step


def said(value: int, lanes: int, parts: bool = False) -> Step:
    """What so many lanes say: in each field another number, and another for each value."""
    obs: Any = np.full((lanes, 3), value, np.uint8)
    if parts:
        obs = {"near": obs, "far": np.full((lanes, 2), 50 + value, np.float32)}
    return Step(
        obs,
        reward=np.full(lanes, 10 + value, np.float32),
        terminated=np.full(lanes, value == 1),
        truncated=np.full(lanes, value == 2),
        first=np.full(lanes, value == 3),
        episode_return=np.full(lanes, 20 + value, np.float32),
        episode_length=np.full(lanes, 30 + value, np.int32),
    )


def like(value: int) -> Step:
    """What one of them says."""
    return jax.tree.map(lambda x: x[0], said(value, 1, parts=True))


@pytest.mark.parametrize("into", [np.asarray, jnp.asarray])  # a run that goes on has JAX's
def test_a_story_keeps_each_field_of_each_lane_in_its_place(into: Any) -> None:
    story = RolloutBuffer(2, jax.tree.map(into, said(0, 4, parts=True)))
    story.write(1, slice(0, 2), said(1, 2, parts=True))
    story.write(1, slice(2, 4), said(2, 2, parts=True))
    story.write(2, slice(None), said(3, 4, parts=True))
    for t, lane, value in [(0, 0, 0), (1, 1, 1), (1, 2, 2), (2, 3, 3)]:
        there = jax.tree.map(lambda x, t=t, lane=lane: x[t, lane], story.steps)
        jax.tree.map(np.testing.assert_array_equal, there, like(value))
    assert story.steps.obs["near"].dtype == np.uint8
    assert story.obs_bytes == 4 * (3 + 2 * 4)


def test_what_is_acted_by_is_the_observation_and_whether_it_is_the_first() -> None:
    story = RolloutBuffer(1, said(0, 2))
    story.write(1, slice(None), said(3, 2))
    for t, value, begun in [(0, 0, False), (1, 3, True)]:
        obs, first = story.before(t)
        np.testing.assert_array_equal(obs, np.full((2, 3), value))
        np.testing.assert_array_equal(first, [begun, begun])


def test_a_story_does_not_depend_on_memory_that_is_written_again() -> None:
    step = said(1, 4)
    story = RolloutBuffer(1, said(0, 4))
    story.write(1, slice(None), step)
    step.obs[:] = 9
    step.reward[:] = 9.0  # type: ignore[index]
    last = story.last()
    np.testing.assert_array_equal(last.obs, np.ones((4, 3)))
    np.testing.assert_array_equal(last.reward, np.full(4, 11.0))
    story.steps.obs[:] = 7
    np.testing.assert_array_equal(last.obs, np.ones((4, 3)))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"reward": np.ones(1, np.float32)}, r"reward float32 \[1\]"),
        ({"episode_length": np.ones(4)}, r"episode_length float64 \[4\]"),  # would be cut off
        (
            {"obs": {"near": np.ones((4, 3), np.uint8)}},
            r"step\(\) gave obs/near uint8 \[4, 3\], r",
        ),
    ],
)
def test_a_step_that_looks_otherwise_than_the_reset_is_refused(
    changed: dict[str, Any], told: str
) -> None:
    story = RolloutBuffer(1, said(0, 4, parts=True))
    with pytest.raises(RondelError, match=told):
        story.write(1, slice(None), said(1, 4, parts=True)._replace(**changed))
