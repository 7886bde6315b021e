"""dm_env environments: what they say, step by step, and how they are seeded."""

import dm_env
import numpy as np
import pytest
from dm_env import specs

from rondel.envs.guard.check import check
from rondel.envs.gymnasium.dm_env import DmEnv, action_space, observation_space
from rondel.envs.registry import make
from rondel.errors import RondelError
from rondel.spaces import Box, Discrete

LENGTH = 3


class Guess(dm_env.Environment):
    """Say whether the number shown is above a half: ends at a wrong guess, cut off after three."""

    def __init__(self, seed=None):
        self.rng = np.random.RandomState(seed)
        self.closed = False

    def observation_spec(self):
        return {
            "number": specs.BoundedArray((1,), np.float64, 0.0, 1.0),
            "parts": (specs.DiscreteArray(LENGTH + 1), specs.Array((2,), bool)),
        }

    def action_spec(self):
        return specs.DiscreteArray(2)

    def reset(self):
        self.t = 0
        return dm_env.restart(self.look())

    def step(self, action):
        self.action_spec().validate(action)
        right = action == (self.number[0] > 0.5)
        self.t += 1
        if not right:
            return dm_env.termination(-1.0, self.look())
        end = dm_env.truncation if self.t == LENGTH else dm_env.transition
        return end(1.0, self.look())

    def look(self):
        self.number = self.rng.uniform(size=1)
        return {"number": self.number, "parts": [self.t, np.array([True, False])]}

    def close(self):
        self.closed = True


def guess(host, step, right):
    above = (step.obs["number"][:, 0] > 0.5).astype(np.int32)
    return host.step(above if right else 1 - above)


@pytest.mark.parametrize("source", [Guess, Guess(), lambda: Guess(), lambda seed: Guess(seed)])
def test_an_episodes_ends(source):
    world = make(source)
    assert world.spec.id == "own:Guess"
    assert world.spec.action == Discrete(2)
    assert isinstance(world.spec.observation["number"], Box)
    assert world.spec.observation["parts"][0] == Discrete(LENGTH + 1)
    check(world)
    host = world.make(1, 0)
    step = host.reset([1])
    for t in (1, 2, 3):
        step = guess(host, step, right=True)
        assert step.obs["parts"][0] == [t]
        assert step.obs["parts"][1].tolist() == [[1, 0]]
        assert (step.reward, step.terminated, step.truncated) == (1.0, False, t == 3)
    assert step.episode_return == [3.0]
    step = guess(host, step, right=True)
    assert (step.first, step.reward, step.truncated) == (True, 0.0, False)
    step = guess(host, step, right=False)
    assert (step.reward, step.terminated, step.truncated) == (-1.0, True, False)
    host.close()


def numbers(source, seeds):
    host = make(source).make(len(seeds), 0)
    return host.reset(seeds).obs["number"][:, 0].tolist()


class Task:
    def __init__(self, kind):
        self._random = kind


class Suite(Guess):
    """Draws from its task's generator, as dm_control does; `kind` makes the generator."""

    def __init__(self, kind=np.random.default_rng):
        self._task = Task(kind(5))

    def look(self):
        self.rng = self._task._random
        return super().look()


class Wrapper(Guess):
    """One environment around another, as in Acme."""

    def __init__(self, env):
        self._environment = env

    def reset(self):
        return self._environment.reset()

    def step(self, action):
        return self._environment.step(action)


@pytest.mark.parametrize(
    "source",
    [
        Guess,
        Guess(),
        lambda seed: Guess(seed),
        Suite,
        Suite(np.random.RandomState),
        lambda: Wrapper(Suite()),
    ],
)
def test_a_lane_goes_by_its_seed_alone(source):
    a, b, again = numbers(source, [11, 12, 11])
    assert a == again != b
    assert numbers(source, [12]) == [b]


def test_a_function_with_a_seed_makes_each_lane_with_its_own():
    # by RandomState(11).uniform(), not by reseeding what was made with another seed
    expected = np.random.RandomState(11).uniform(size=1).astype(np.float32)
    assert numbers(lambda seed: Guess(seed), [11]) == expected.tolist()


def test_what_cannot_be_seeded_is_not_taken_for_broken():
    class Global(Guess):
        def __init__(self):
            self.rng = None

        def look(self):
            self.number = np.random.uniform(size=1)  # noqa: NPY002
            return {"number": self.number, "parts": [self.t, np.array([True, False])]}

    assert not DmEnv(Global()).is_seeded
    check(make(Global))


def test_a_seeded_one_that_goes_differently_is():
    class Careless(Guess):
        def look(self):
            self.number = np.random.uniform(size=1)  # noqa: NPY002
            return {"number": self.number, "parts": [self.t, np.array([True, False])]}

    with pytest.raises(RondelError, match="Careless must repeat an episode"):
        check(make(Careless))


def test_closing_reaches_the_environment():
    env = Guess()
    DmEnv(env).close()
    assert env.closed


def test_specs_become_spaces():
    assert observation_space(specs.Array((2,), np.uint8), "X").high.tolist() == [255, 255]
    assert observation_space(specs.Array((), np.float32), "X").low == -np.inf
    whole = action_space(specs.BoundedArray((), np.int32, -1, 3), "X")
    assert (whole.n, whole.start) == (5, -1)
    box = action_space(specs.BoundedArray((2,), np.float64, [-1, -2], 2), "X")
    assert (box.low.tolist(), box.high.tolist()) == ([-1, -2], [2, 2])


@pytest.mark.parametrize(
    ("translate", "spec", "words"),
    [
        (
            observation_space,
            specs.StringArray(()),
            ["X must be arrays", "got StringArray"],
        ),
        (action_space, {"a": specs.DiscreteArray(2)}, ["action of X must be one", "got {'a'"]),
        (action_space, [specs.DiscreteArray(2)] * 2, ["action of X must be one", "got ["]),
    ],
)
def test_other_specs_are_refused_by_name(translate, spec, words):
    with pytest.raises(RondelError) as caught:
        translate(spec, "X")
    assert all(word in str(caught.value) for word in words), str(caught.value)
