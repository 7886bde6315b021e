"""Where environments of Gymnasium come from: ids, instances and vector environments."""

import pickle
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest

from envs.strange import Nested, broken
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
