"""Environments with the methods of Gym 0.21, and with those between then and Gymnasium."""

import gymnasium
import numpy as np
import pytest

from rondel.envs.guard.check import check
from rondel.envs.gymnasium.old_gym import space_of
from rondel.envs.registry import make
from rondel.errors import RondelError


class Box:
    """What gym.spaces.Box was: not a Gymnasium space, but with the same attributes."""

    def __init__(self, low, high, shape, dtype=np.float32):
        self.low, self.high = np.full(shape, low, dtype), np.full(shape, high, dtype)
        self.shape, self.dtype = shape, np.dtype(dtype)


class Discrete:
    def __init__(self, n):
        self.n = n


class Countdown:
    """From a random number down to 0 where it ends, or cut off after four steps (TimeLimit)."""

    observation_space = Box(0, 9, (1,))
    action_space = Discrete(2)

    def seed(self, seed=None):
        self.random = np.random.default_rng(seed)
        return [seed]

    def reset(self):
        self.n, self.t = float(self.random.integers(2, 9)), 0
        return np.array([self.n])

    def step(self, action):
        self.n, self.t = max(0.0, self.n - 1 - action), self.t + 1
        done, info = self.n == 0, {}
        if self.t == 4:
            info["TimeLimit.truncated"] = not done
            done = True
        return np.array([self.n]), float(action), np.bool_(done), info


class Between(Countdown):
    """Gym 0.26: seeds by reset, and five values; but no gymnasium.Env."""

    seed = None

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            Countdown.seed(self, seed)
        return super().reset(), {}

    def step(self, action):
        obs, reward, done, info = super().step(action)
        cut = info.get("TimeLimit.truncated", False)
        return obs, reward, done and not cut, cut, info


@pytest.mark.parametrize("source", [Countdown, Countdown(), lambda: Countdown(), Between])
def test_steps_and_ends(source):
    world = make(source)
    assert world.spec.id.startswith("own:")
    assert world.spec.observation.high.tolist() == [9]
    check(world)
    seed = next(s for s in range(99) if np.random.default_rng(s).integers(2, 9) == 6)
    host = world.make(1, 0)
    assert host.reset([seed]).obs.tolist() == [[6]]
    # down by one each step: 5, 4, 3, then cut off at 2
    for left in (5, 4, 3, 2):
        step = host.step(np.array([0]))
        assert step.obs.tolist() == [[left]]
        assert (step.terminated, step.truncated) == (False, left == 2)
    assert host.step(np.array([0])).first == [True]
    # from 6 again, down by two: 4, 2, 0
    host.reset([seed])
    for left in (4, 2, 0):
        step = host.step(np.array([1]))
        assert (step.obs, step.reward, step.truncated) == ([[left]], 1.0, False)
        assert step.terminated == [left == 0]


def test_both_on_one_step_is_an_end():
    # 7 down by two four times: 5, 3, 1, 0, where the limit is too
    seed = next(s for s in range(99) if np.random.default_rng(s).integers(2, 9) == 7)
    host = make(Countdown).make(1, 0)
    host.reset([seed])
    for _ in range(4):
        step = host.step(np.array([1]))
    assert (step.terminated, step.truncated) == (True, False)


def test_old_spaces_become_gymnasiums():
    def space(kind, **attributes):
        return type(kind, (), attributes)()

    gym = gymnasium.spaces
    nest = space("Dict", spaces={"a": Discrete(3), "b": space("Tuple", spaces=[Discrete(2)])})
    assert space_of(nest, "X") == gym.Dict(
        {"a": gym.Discrete(3), "b": gym.Tuple([gym.Discrete(2)])}
    )
    assert space_of(space("MultiDiscrete", nvec=np.array([2, 3])), "X") == gym.MultiDiscrete([2, 3])
    assert space_of(space("MultiBinary", n=3), "X") == gym.MultiBinary(3)
    assert space_of(Box(-1, 1, (2,), np.float64), "X") == gym.Box(-1, 1, (2,), np.float64)
    assert space_of(gym.Discrete(4), "X") == gym.Discrete(4)


def test_other_spaces_are_refused_by_name():
    class Graph:
        pass

    class Odd(Countdown):
        observation_space = Graph()

    with pytest.raises(RondelError, match=r"spaces of .*Odd must be Box, .*got a Graph"):
        make(Odd)


def test_a_step_of_three_values_gets_the_checks_sentence():
    class Three(Countdown):
        def step(self, action):
            return super().step(action)[:3]

    with pytest.raises(RondelError, match="tuple of 3"):
        check(make(Three))
