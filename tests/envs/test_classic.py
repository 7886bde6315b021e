"""The classics against Gymnasium: from the same state, one step in each, over whole episodes."""

import gymnasium
import jax
import numpy as np
import pytest

from envs.rolling import keys, random_actions, roll
from marks import few_of
from rondel.envs.guard.sampling import violations
from rondel.envs.jax.world import CLASSICS
from rondel.envs.registry import make
from rondel.spaces import Box

STEPS, LANES = 1100, 4
# what lanes 2 and 3 do, from the observation, so that the goal or the time limit is reached
DRIVERS = {
    "CartPole-v1": lambda obs: obs[:, 2] + 0.4 * obs[:, 3] + 0.05 * obs[:, 0] + 0.1 * obs[:, 1] > 0,
    "Acrobot-v1": lambda obs: 2 * (obs[:, 5] > 0),
    "MountainCar-v0": lambda obs: 2 * (obs[:, 1] > 0),
    "MountainCarContinuous-v0": lambda obs: np.sign(obs[:, 1:2] + 1e-6),
    "Pendulum-v1": lambda obs: np.sign(obs[:, 2:3]),
}
BOTH_ENDS = {"CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0"}


def driven(env, driver):
    """A run in which lanes 0 and 1 act at random, the others mostly by the driver; [T, b]."""
    state, record = jax.jit(env.init)(keys(LANES))
    step, rows = jax.jit(env.step), []
    for t, action in enumerate(random_actions(env, STEPS, LANES)):
        if t % 10:  # a driver alone would end every episode in the same way
            action[2:] = driver(np.asarray(record.obs))[2:]
        before, (state, record) = state, step(state, action)
        rows.append((before.physics, action, record))
    return jax.tree.map(lambda *row: np.stack(row), *rows)


@pytest.mark.parametrize("name", CLASSICS)
def test_steps_equal_gymnasiums(name):
    env = make(name)
    physics, actions, steps = driven(env, DRIVERS[name])
    for lane in range(LANES):
        twin = gymnasium.make(name, disable_env_checker=True)
        twin.reset(seed=0)
        over, total, length = False, 0.0, 0
        for t in range(STEPS):
            ours = jax.tree.map(lambda x, t=t, lane=lane: x[t, lane], steps)
            assert ours.first == over
            if over:
                twin.reset()
                over, total, length = False, 0.0, 0
                assert (ours.reward, ours.terminated, ours.truncated) == (0, False, False)
                assert (ours.episode_return, ours.episode_length) == (0, 0)
                continue
            twin.unwrapped.state = np.array([x[t, lane] for x in physics], np.float64)
            action = actions[t, lane]
            action = env.spec.action.to_env(action) if action.ndim else int(action)
            obs, reward, terminated, truncated, _ = twin.step(action)
            total, length, over = total + reward, length + 1, terminated or truncated
            np.testing.assert_allclose(ours.obs, obs, rtol=1e-4, atol=2e-5)
            np.testing.assert_allclose(ours.reward, reward, rtol=1e-5, atol=1e-5)
            assert (ours.terminated, ours.truncated) == (terminated, truncated)
            assert ours.episode_length == length
            np.testing.assert_allclose(ours.episode_return, total, rtol=1e-4, atol=1e-3)
    assert steps.truncated.any()
    assert steps.terminated.any() == (name in BOTH_ENDS)


@pytest.mark.parametrize("name", CLASSICS)
def test_spaces_equal_gymnasiums(name):
    spec, twin = make(name).spec, gymnasium.make(name)
    assert spec.id == f"jax:{name}"
    np.testing.assert_array_equal(spec.observation.low, twin.observation_space.low)
    np.testing.assert_array_equal(spec.observation.high, twin.observation_space.high)
    if isinstance(spec.action, Box):
        np.testing.assert_array_equal(spec.action.low, twin.action_space.low)
        np.testing.assert_array_equal(spec.action.high, twin.action_space.high)
    else:
        assert spec.action.n == twin.action_space.n


STARTS = {  # bounds of the uniform start: low and high for each part of the physics
    "CartPole-v1": [(-0.05, 0.05)] * 4,
    "Acrobot-v1": [(-0.1, 0.1)] * 4,
    "MountainCar-v0": [(-0.6, -0.4), (0, 0)],
    "MountainCarContinuous-v0": [(-0.6, -0.4), (0, 0)],
    "Pendulum-v1": [(-np.pi, np.pi), (-1, 1)],
}


@pytest.mark.parametrize("name", CLASSICS)
def test_starts_are_uniform_between_gymnasiums_bounds(name):
    state, step = jax.jit(make(name).init)(keys(4096))
    assert step.first.all()
    for part, (low, high) in zip(state.physics, STARTS[name], strict=True):
        assert violations(part, low, high) is None
        # of 4,096 uniform numbers 410 lie in each tenth of the range, with a deviation of 19
        if high > low:
            counts, _ = np.histogram(part, bins=10, range=(low, high))
            assert counts.min() > 410 - 5 * 19
            assert counts.max() < 410 + 5 * 19


@pytest.mark.parametrize("name", few_of(CLASSICS, ["CartPole-v1", "Pendulum-v1"]))
def test_a_lane_does_not_depend_on_the_lanes_beside_it(name):
    env = make(name)
    all_keys, actions = keys(64), random_actions(env, 250, 64)
    whole = roll(env, all_keys, actions)
    for b in (1, 4, 8):
        for low in (0, 64 - b):
            lanes = slice(low, low + b)
            _, first, steps = roll(env, all_keys[lanes], actions[:, lanes])
            jax.tree.map(
                lambda w, p, lanes=lanes: np.testing.assert_array_equal(w[:, lanes], p),
                whole[2],
                steps,
            )
            np.testing.assert_array_equal(whole[1].obs[lanes], first.obs)
