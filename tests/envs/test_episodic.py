"""Episodes around three functions of a user, and the arithmetic beneath."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from envs.rolling import keys, random_actions, roll
from rondel.envs.jax.episodic import episodic
from rondel.ops.random import uniform
from rondel.spaces import Box, Discrete
from rondel.types import EnvSpec

SPEC = EnvSpec("mine:walk", Box(-np.ones(1, np.float32), np.ones(1, np.float32)), Discrete(2, 5))


def counter(end: int | None, time_limit: int | None):
    """Counts its steps; terminates after `end` of them; the reward is the action, 5 or 6."""
    return episodic(
        SPEC,
        start=lambda keys: jnp.zeros(keys.shape),
        move=lambda n, action: (n + 1, action, n + 1 == (end or -1)),
        observe=lambda n: n[:, None],
        time_limit=time_limit,
    )


def test_the_timeline_of_an_episodes_end():
    # with action 1 (6 in the environment's count) everywhere and two steps per episode:
    # step, last step, reset, step, last step, reset, ...
    _, first, steps = roll(counter(end=2, time_limit=None), keys(1), np.ones((6, 1), np.int32))
    assert first.first.tolist() == [True]
    assert steps.obs[:, 0, 0].tolist() == [1, 2, 0, 1, 2, 0]
    assert steps.reward[:, 0].tolist() == [6, 6, 0, 6, 6, 0]
    assert steps.terminated[:, 0].tolist() == [False, True, False] * 2
    assert steps.truncated[:, 0].tolist() == [False] * 6
    assert steps.first[:, 0].tolist() == [False, False, True] * 2
    assert steps.episode_return[:, 0].tolist() == [6, 12, 0, 6, 12, 0]
    assert steps.episode_length[:, 0].tolist() == [1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(
    ("end", "limit", "flags"),
    [(None, 2, (False, True)), (2, 2, (True, True)), (2, 3, (True, False))],
)
def test_a_time_limit_truncates_even_where_the_episode_terminates(end, limit, flags):
    _, _, steps = roll(counter(end, limit), keys(1), np.zeros((2, 1), np.int32))
    assert (steps.terminated[1, 0], steps.truncated[1, 0]) == flags


def test_each_lane_and_episode_starts_from_its_own_randomness():
    env = episodic(
        SPEC,
        start=lambda keys: uniform(keys, 1)[:, 0],
        move=lambda x, action: (x, x, action > 0),
        observe=lambda x: x[:, None],
    )
    _, first, steps = roll(env, keys(8), random_actions(env, 20, 8))
    starts = np.concatenate([first.obs[None], steps.obs[1::2]])[:, :, 0]
    assert len(np.unique(starts)) == starts.size
    again = roll(env, keys(8), random_actions(env, 20, 8))
    np.testing.assert_array_equal(again[2].obs, steps.obs)


def test_physics_may_be_any_tree_and_hold_keys():
    def move(physics, action):
        key, step_key = jnp.moveaxis(jax.vmap(jax.random.split)(physics["key"]), 1, 0)
        noise = jax.vmap(lambda key: jax.random.normal(key, (2,)))(step_key)
        return {"key": key, "x": physics["x"] + noise}, noise[:, 0], action == 6

    env = episodic(
        SPEC,
        start=lambda keys: {"key": keys, "x": jnp.zeros((*keys.shape, 2))},
        move=move,
        observe=lambda physics: {"x": physics["x"]},
    )
    state, _ = jax.jit(env.init)(keys(3))
    for _ in range(3):
        state, step = jax.jit(env.step)(state, np.array([0, 1, 0]))
    assert step.first.tolist() == [False, False, False]
    assert step.obs["x"].shape == (3, 2)


def test_a_task_may_say_itself_where_an_episode_is_cut_off():
    # cut off at the third step, though the limit is 5 and it terminates at 4: 1 2 3, reset, 1 2 3
    env = episodic(
        SPEC,
        start=lambda keys: jnp.zeros(keys.shape),
        move=lambda n, action: (n + 1, action, n + 1 == 4),
        observe=lambda n: n[:, None],
        time_limit=5,
        cut_off=lambda n: (n == 3) | (n == 0),  # what it says of a fresh start is not asked
    )
    _, first, steps = roll(env, keys(1), np.zeros((7, 1), np.int32))
    assert first.truncated.tolist() == [False]
    assert steps.obs[:, 0, 0].tolist() == [1, 2, 3, 0, 1, 2, 3]
    assert steps.truncated[:, 0].tolist() == [False, False, True, False, False, False, True]
    assert not steps.terminated.any()


def test_a_reset_of_one_lane_leaves_the_others_as_they_were():
    env = episodic(
        SPEC,
        start=lambda keys: {"key": keys, "n": jnp.zeros(keys.shape)},
        move=lambda p, action: ({"key": p["key"], "n": p["n"] + 1}, action, action == 6),
        observe=lambda p: p["n"][:, None],
    )
    state, _ = jax.jit(env.init)(keys(2))
    for action in ([0, 0], [1, 0], [0, 0]):  # lane 0 ends at the second step
        state, step = jax.jit(env.step)(state, np.array(action))
    assert step.obs[:, 0].tolist() == [0, 3]
    before, after = jax.random.key_data(keys(2)), jax.random.key_data(state.physics["key"])
    assert (before == after).all(axis=1).tolist() == [False, True]
