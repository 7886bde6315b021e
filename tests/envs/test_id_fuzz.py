"""Any text is the id of an environment or gets a sentence."""

import pytest
from hypothesis import strategies as st

from fuzz import QUICK_AND_LONG, holds, mutated, sentence
from rondel.envs.registry import id_without_world, make, names
from rondel.envs.world import split
from rondel.errors import RondelError
from rondel.run.storage.run_folder import can_be_made

pytestmark = pytest.mark.fault

IDS = [
    "CartPole-v1",
    "jax:CartPole-v1?velocities=false",
    "gymnasium:FrozenLake-v1?map_name=8x8&is_slippery=false",
    "gymnasium:MountainCar-v0?goal_velocity=0.5",
    "probe:both",
    "jax:TicTacToe-v0?opponent=mcts&simulations=2",
]
arguments = st.dictionaries(
    st.sampled_from(
        ["velocities", "opponent", "id", "render_mode", "x", "max_episode_steps", "kwargs", "self"]
    ),
    st.sampled_from(["1", "-1e999", "null", "[[]]", '"\\u003a"', "{}", "true", "NaN", "9" * 5_000]),
    min_size=1,
).map(lambda pairs: "?" + "&".join(f"{name}={value}" for name, value in pairs.items()))


@QUICK_AND_LONG
def test_any_text_is_split_or_gets_a_sentence(effort):
    def one(text):
        sentence(split, text)
        sentence(can_be_made, text)
        id_without_world(text)

    texts = st.text() | st.sampled_from(IDS).flatmap(mutated)
    holds(one, texts | st.tuples(st.sampled_from(IDS), arguments).map("".join), 200 * effort)


@QUICK_AND_LONG
def test_any_text_makes_an_environment_or_gets_a_sentence(effort):
    """Without a second colon: what stands before it is a module, which its user asks for."""
    worlds = st.sampled_from(names()).flatmap(
        lambda world: st.text(max_size=10).map(lambda name: f"{world}:{name.replace(':', '')}")
    )
    given = st.tuples(st.sampled_from(IDS), arguments).map("".join)
    changed = st.sampled_from(IDS).flatmap(mutated).filter(lambda text: text.count(":") < 2)

    def one(text):
        sentence(make, text)

    holds(one, worlds | given | changed, 60 * effort)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("gymnasium:..os:CartPole-v1", "must name a module"),
        ("gymnasium:a b:CartPole-v1", "must name a module"),
        ("gymnasium:CartPole-v1?id=1", "multiple values"),
        ("gymnasium:CartPole-v1?speed=1", "unexpected keyword argument 'speed'"),
    ],
)
def test_a_call_that_can_not_be_is_no_fault_of_the_environment(asked, words):
    with pytest.raises(RondelError, match=words) as error:
        make(asked)
    assert type(error.value) is RondelError  # else the command line would show a traceback


def test_brackets_without_end_are_text():
    assert split(f"Mine-v0?a={'[' * 100_000}")[1] == {"a": "[" * 100_000}


@pytest.mark.parametrize(
    "env_id",
    ["gymnasium:mine:Env-v0", 'gymnasium:Old-v0?env_id="mine\\u003aEnv-v0"', "mine:Env-v0", "x"],
)
def test_a_module_in_an_id_is_for_its_user_to_bring(env_id):
    assert not can_be_made(env_id)
