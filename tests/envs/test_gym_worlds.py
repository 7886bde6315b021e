"""Where environments of Gymnasium come from: ids, instances and vector environments."""

import pickle
from functools import partial
from importlib.util import find_spec
from typing import ClassVar

import gymnasium
import numpy as np
import pytest

from envs.strange import Nested, Plain, broken
from rondel.envs.gymnasium.lanes import Lanes
from rondel.envs.registry import make
from rondel.errors import RondelError


def test_an_env_that_its_id_alone_would_not_make_is_the_users_own():
    plain = gymnasium.make("Pendulum-v1")
    assert make(plain).spec.id == "gymnasium:Pendulum-v1"
    assert make(gymnasium.make("Pendulum-v1", g=1.0)).spec.id == "own:PendulumEnv"
    assert make(gymnasium.make("Pendulum-v1", max_episode_steps=9)).spec.id == "own:PendulumEnv"
    wrapped = gymnasium.wrappers.TransformReward(plain, lambda reward: 2 * reward)
    assert make(lambda: wrapped).spec.id == "own:PendulumEnv"


@pytest.mark.parametrize(
    "env", [gymnasium.make("CartPole-v1", max_episode_steps=7), Nested()], ids=["made", "bare"]
)
def test_an_instance_is_a_lane_and_further_ones_are_copies(env):
    world = make(env)
    lanes = world.make(3)
    raw = [lane.unwrapped for lane in (*lanes.envs, *world.make(2).envs)]
    assert [lane is env.unwrapped for lane in raw] == [True, False, False, False, False]
    assert len({id(lane) for lane in raw}) == 5
    lanes.close()
    assert world.make(1).envs[0].unwrapped is env.unwrapped


def test_copies_of_an_instance_keep_its_arguments():
    world = make(gymnasium.make("CartPole-v1", max_episode_steps=7, sutton_barto_reward=True))
    host = world.make(2)
    host.reset([0, 0])
    steps = [host.step(np.array([t % 2, t % 2])) for t in range(7)]
    assert steps[-1].truncated.tolist() == [True, True]
    assert steps[-1].episode_return.tolist() == [0, 0]


def test_an_instance_is_closed_by_whoever_made_it():
    closed = []
    env = broken(close=closed.append)()
    make(env).make(1).close()
    assert closed == []


def test_an_instance_that_cannot_be_copied_asks_for_a_factory():
    def refuse(self, memo):
        raise TypeError("no copies")

    world = make(broken(__deepcopy__=refuse)())
    world.make(1)
    with pytest.raises(RondelError, match=r"no copies.*function that makes one"):
        world.make(1)


@pytest.mark.skipif(find_spec("Box2D") is not None, reason="the package is not missing here")
def test_a_missing_package_gives_the_command_to_install_it():
    with pytest.raises(RondelError, match=r'pip install "rondel\[box2d\]"') as caught:
        make("gymnasium:LunarLander-v3")
    assert ("envpool:LunarLander-v3" in str(caught.value)) == (find_spec("envpool") is not None)


def test_worlds_by_id_can_be_sent_to_other_processes():
    world = pickle.loads(pickle.dumps(make("gymnasium:CartPole-v1")))
    np.testing.assert_array_equal(
        world.make(1).reset([3]).obs, make("gymnasium:CartPole-v1").make(1).reset([3]).obs
    )


class Independent(gymnasium.vector.VectorEnv):
    """A vector environment of `Plain`-like lanes, each with its own generator (or one for all)."""

    metadata: ClassVar = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs, shared=False, **_):
        self.num_envs, self.shared = num_envs, shared
        self.single_observation_space, self.single_action_space = (
            Plain.observation_space,
            Plain.action_space,
        )

    def reset(self, *, seed=None, options=None):
        self.random = [np.random.default_rng(s) for s in seed]
        if self.shared:
            self.random = self.random[:1] * self.num_envs
        self.t = 0
        return self._obs(), {}

    def step(self, action):
        self.t = (self.t + 1) % 4  # three steps, then the reset
        end = np.full(self.num_envs, self.t == 3)
        return self._obs(), np.full(self.num_envs, float(self.t != 0)), end, ~end & False, {}

    def _obs(self):
        return np.stack([r.uniform(-1, 1, 2) for r in self.random]).astype(np.float32)


@pytest.fixture
def vector_id(request):
    name = f"rondel-test/Vector{request.param}-v0"
    gymnasium.register(
        name, entry_point=Plain, vector_entry_point=partial(Independent, shared=request.param)
    )
    yield name
    del gymnasium.registry[name]


@pytest.mark.parametrize("vector_id", [False], indirect=True)
def test_a_vector_environment_with_independent_lanes_is_used(vector_id):
    host = make(f"gymnasium:{vector_id}").make(2)
    assert not isinstance(host, Lanes)
    host.reset([1, 2])
    steps = [host.step(np.zeros(2, np.int32)) for _ in range(5)]
    assert [s.first[0] for s in steps] == [False, False, False, True, False]
    assert [s.terminated[0] for s in steps] == [False, False, True, False, False]
    assert [s.episode_length[0] for s in steps] == [1, 2, 3, 0, 1]
    assert [s.episode_return[0] for s in steps] == [1, 2, 3, 0, 1]
    assert isinstance(host.reset([1, 2]).obs, np.ndarray)


@pytest.mark.parametrize("vector_id", [True], indirect=True)
def test_a_vector_environment_with_shared_randomness_is_not(vector_id):
    assert isinstance(make(f"gymnasium:{vector_id}").make(2), Lanes)
    assert isinstance(make("gymnasium:CartPole-v1").make(2), Lanes)
