"""Arguments of an environment, in its id."""

import pytest

from rondel.envs import registry as envs
from rondel.envs.world import split
from rondel.errors import RondelError


def test_arguments_are_numbers_flags_and_text():
    name, arguments = split("Mine-v0?a=1&b=0.5&c=true&d=False&e=null&f=some text&g=[1,2]")
    assert name == "Mine-v0"
    wanted = {"a": 1, "b": 0.5, "c": True, "d": False, "e": None, "f": "some text", "g": [1, 2]}
    assert arguments == wanted
    assert split("Mine-v0") == ("Mine-v0", {})


@pytest.mark.parametrize("wrong", ["Mine-v0?a", "Mine-v0?", "Mine-v0?a=1&&b=2", "Mine-v0?1=2"])
def test_what_is_no_argument_gets_a_sentence(wrong):
    with pytest.raises(RondelError, match="must be name=value"):
        split(wrong)


@pytest.mark.parametrize("name", ["gymnasium:FrozenLake-v1", "FrozenLake-v1"])
def test_gymnasium_gets_them(name):
    world = envs.make(f"{name}?map_name=8x8&is_slippery=false")
    assert world.spec.observation.n == 64
    assert world.spec.id == "gymnasium:FrozenLake-v1?map_name=8x8&is_slippery=false"
    lanes = world.make(1, 0)
    lanes.reset([0])
    step = lanes.step(lanes.reset([0]).obs * 0 + 2)  # to the right, and it does not slip
    assert step.obs.tolist() == [1]
    lanes.close()


def test_an_argument_that_gymnasium_does_not_know_is_named():
    with pytest.raises(RondelError, match="slipery"):
        envs.make("gymnasium:FrozenLake-v1?is_slipery=false")


def test_an_argument_that_was_nearly_one_of_ours_is_not_asked_of_gymnasium():
    with pytest.raises(RondelError, match=r"no argument velocity\. Did you mean velocities\?"):
        envs.make("CartPole-v1?velocity=false")
    with pytest.raises(RondelError, match="jax:TicTacToe-v0 has no argument foe"):
        envs.make("TicTacToe-v0?foe=random")
    assert envs.make("CartPole-v1?sutton_barto_reward=true").spec.id.startswith("gymnasium:")


def test_the_bare_id_has_none():
    assert envs.id_without_world("gymnasium:FrozenLake-v1?map_name=8x8") == "FrozenLake-v1"
    assert envs.id_without_world("FrozenLake-v1?map_name=8x8") == "FrozenLake-v1"
