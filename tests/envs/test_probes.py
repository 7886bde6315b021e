"""The probes have the values that their docstrings claim."""

import numpy as np
import pytest

from envs.rolling import keys, random_actions, roll
from rondel.envs.jax import probes
from rondel.envs.jax.world import PROBES
from rondel.envs.registry import make

LANES = 512


def returns(name, policy):
    """(first observations, returns) of one episode per lane, where policy(obs [T, b, n]) acts."""
    env = make(f"probe:{name}")
    first = roll(env, keys(LANES), random_actions(env, 1, LANES))[1].obs
    length = {"delay": 2, "memory": probes.MEMORY_STEPS}.get(name, 1)
    actions = np.stack([policy(first)] * length)
    _, _, steps = roll(env, keys(LANES), actions)
    assert steps.terminated[-1].all()
    assert not steps.terminated[:-1].any()
    assert not steps.truncated.any()
    return first, steps.episode_return[-1], steps


def always(action):
    return lambda obs: np.full(len(obs), action, np.int32)


def by_sign(obs):
    return (obs[:, 0] > 0).astype(np.int32)


@pytest.mark.parametrize("action", [0, 1])
def test_one(action):
    assert (returns("one", always(action))[1] == 1).all()


@pytest.mark.parametrize("action", [0, 1])
def test_observation(action):
    obs, value, _ = returns("observation", always(action))
    assert set(obs[:, 0]) == {-1, 1}
    assert (value == obs[:, 0]).all()


def test_delay():
    obs, value, steps = returns("delay", always(0))
    assert (obs == 0).all()
    assert (steps.obs[0] == 1).all()
    assert (steps.reward[0] == 0).all()
    assert (steps.reward[1] == 1).all()
    assert (value == 1).all()


def test_action():
    assert (returns("action", always(0))[1] == -1).all()
    assert (returns("action", always(1))[1] == 1).all()


def test_both():
    assert (returns("both", by_sign)[1] == 1).all()
    assert (returns("both", lambda obs: 1 - by_sign(obs))[1] == -1).all()
    # whoever doesn't look: a mean of 512 signs, within 5 deviations of 1 / sqrt(512)
    assert abs(returns("both", always(1))[1].mean()) < 5 / np.sqrt(512)


def test_memory():
    cue, value, steps = returns("memory", by_sign)
    assert (value == 1).all()
    assert set(cue[:, 0]) == {-1, 1}
    assert (steps.reward[:-1] == 0).all()
    # after the cue nothing of it is seen, and only the last observation before the end asks
    assert (steps.obs[:3, :, 0] == 0).all()
    assert (steps.obs[:3, 0, 1] == [0, 0, 1]).all()
    assert (returns("memory", lambda obs: 1 - by_sign(obs))[1] == -1).all()


def test_continuous():
    # the action x / 2 in units of -1..1 is x in the environment's -2..2
    assert np.abs(returns("continuous", lambda obs: obs / 2)[1]).max() < 1e-12
    obs, value, _ = returns("continuous", np.zeros_like)
    np.testing.assert_allclose(value, -(obs[:, 0] ** 2), rtol=1e-6)
    # the variance of x**2 is 1/5 - 1/9 = 4/45
    assert abs(value.mean() + 1 / 3) < 5 * np.sqrt(4 / 45 / LANES)


def test_the_registry_knows_every_probe():
    for name in PROBES:
        assert make(f"probe:{name}").spec.id == f"probe:{name}"
        assert getattr(probes, name).__doc__
