"""gymnax's environments against raw gymnax, step by step."""

import subprocess
import sys

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments import spaces

from envs.rolling import keys, random_actions, roll
from rondel.envs.errors import EnvError
from rondel.envs.guard.check import check
from rondel.envs.guard.sampling import leaves, violations
from rondel.envs.gymnax import (
    BUILT_IN,
    WRONG_BOUNDS,
    action_spec,
    from_task,
    observation_spec,
    registered,
)
from rondel.envs.registry import known_ids, make
from rondel.errors import RondelError
from rondel.ops.random import fold
from rondel.spaces import Box, Discrete, MultiBinary
from rondel.types import Env

DOWNLOADS = "MNISTBandit-bsuite"  # fetches its images from the network when it is made


def key_of(lane_key, episode, count):
    """The key that a lane's `count`-th step of its `episode`-th episode uses; 0 is the reset."""
    words = jax.random.key_data(lane_key) + jnp.array([0, episode], jnp.uint32)
    return fold(jax.random.wrap_key_data(words, impl="threefry2x32"), count)


@pytest.mark.parametrize(
    ("name", "limit", "ends"),
    [
        ("CartPole-v1", 12, {"terminated", "truncated"}),  # a random pole falls after 9 and more
        ("Breakout-MinAtar", 1000, {"terminated"}),
        pytest.param("Asterix-MinAtar", 40, {"terminated", "truncated"}, marks=pytest.mark.long),
        ("UmbrellaChain-bsuite", 100, {"terminated"}),
    ],
)
def test_steps_equal_those_of_raw_gymnax(name, limit, ends):
    raw, params = gymnax.make(name)
    params = params.replace(max_steps_in_episode=limit)
    env, lanes = from_task(raw, params, f"gymnax:{name}"), keys(3)
    actions = random_actions(env, 150, 3)
    _, start, steps = roll(env, lanes, actions)
    reset, step = jax.jit(raw.reset_env), jax.jit(raw.step_env)
    seen = set()
    for lane in range(3):
        episode, count, total, over = 0, 0, 0.0, False
        obs, state = reset(key_of(lanes[lane], 0, 0), params)
        np.testing.assert_array_equal(start.obs[lane], obs)
        for t, action in enumerate(actions[:, lane]):
            ours = jax.tree.map(lambda x, t=t, lane=lane: x[t, lane], steps)
            reward, terminated, truncated, first = 0.0, False, False, over
            if over:
                episode, count, total = episode + 1, 0, 0.0
                obs, state = reset(key_of(lanes[lane], episode, 0), params)
            else:
                count += 1
                key = key_of(lanes[lane], episode, count)
                obs, state, reward, terminated, _ = step(key, state, int(action), params)
                truncated = raw.is_truncated(state, params)
                total += float(reward)
            np.testing.assert_allclose(ours.obs, obs, rtol=1e-5, atol=1e-6)
            assert (ours.reward, ours.first) == (reward, first)
            assert (ours.terminated, ours.truncated) == (bool(terminated), bool(truncated))
            assert (ours.episode_length, ours.episode_return) == (count, total)
            over = bool(terminated) or bool(truncated)
            seen |= {"terminated"} if terminated else {"truncated"} if truncated else set()
    assert seen == ends


FEW = ("CartPole-v1", "Breakout-MinAtar", "MetaMaze-misc", "DeepSea-bsuite", "Reacher-misc")
ALL = [
    name if name in FEW else pytest.param(name, marks=pytest.mark.long)
    for name in BUILT_IN
    if name != DOWNLOADS
]


@pytest.mark.parametrize("name", ALL)
def test_every_environment_is_as_it_says(name):
    env = make(f"gymnax:{name}")
    assert isinstance(env, Env)
    assert env.spec.id == f"gymnax:{name}"
    check(env)
    _, _, steps = roll(env, keys(2), random_actions(env, 250, 2))
    for _, space, array in leaves(env.spec.observation, steps.obs):
        assert array.dtype == space.dtype
        if isinstance(space, Box):
            assert violations(array, space.low, space.high) is None
            assert np.isinf(space.low).all() == (name in WRONG_BOUNDS)


def test_a_lanes_fate_does_not_depend_on_other_lanes():
    env = make("gymnax:SpaceInvaders-MinAtar")
    actions = random_actions(env, 120, 5)
    together = roll(env, keys(5), actions)[2]
    alone = roll(env, keys(5)[3:4], actions[:, 3:4])[2]
    assert together.terminated[:, 3].any()
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[:, 3], b[:, 0]), together, alone)


def test_what_is_built_in_is_what_gymnax_has():
    assert gymnax.registered_envs == BUILT_IN
    assert registered() == known_ids()["gymnax"] == BUILT_IN


def test_listing_imports_neither_gymnax_nor_jax():
    code = (
        "import sys; from rondel.envs.gymnax import registered; print(len(registered()))\n"
        "print({'gymnax', 'jax'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split("\n")[:2] == [str(len(BUILT_IN)), "set()"]


def test_without_the_package_the_command_to_install_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnax", None)
    with pytest.raises(RondelError, match=r'pip install "rondel\[gymnax\]"'):
        make("gymnax:Breakout-MinAtar")
    assert known_ids()["gymnax"] == []


def test_an_id_that_only_gymnax_has_needs_no_world():
    assert make("Breakout-MinAtar").spec.id == "gymnax:Breakout-MinAtar"


@pytest.mark.parametrize("asked", ["gymnax:Breakout", "gymnax:breakout-minatar", "Breakout-Minata"])
def test_an_unknown_id_gets_near_names(asked):
    with pytest.raises(RondelError, match="gymnax:Breakout-MinAtar"):
        make(asked)


class Changed(type(gymnax.make("CartPole-v1")[0])):
    """CartPole that sees and acts in other spaces than it does."""

    def __init__(self, seen=None, done=None, show=lambda obs: obs):
        super().__init__()
        self.seen, self.done, self.show = seen, done, show

    def observation_space(self, params):
        return self.seen or super().observation_space(params)

    def action_space(self, params=None):
        return self.done or super().action_space(params)

    def reset_env(self, key, params):
        obs, state = super().reset_env(key, params)
        return self.show(obs), state

    def step_env(self, key, state, action, params):
        obs, *rest = super().step_env(key, state, action, params)
        return self.show(obs), *rest


def changed(**spaces):
    task = Changed(**spaces)
    return from_task(task, task.default_params, "mine:changed")


def test_a_tree_of_observations_stays_one():
    two = spaces.Box(-9, 9, (2,))
    env = changed(
        seen=spaces.Dict({"a": two, "b": spaces.Tuple([spaces.Box(0, 1, (2,), bool), two])}),
        show=lambda obs: {"a": obs[:2], "b": (obs[2:] > 0, obs[:2])},
    )
    assert env.spec.observation["b"][0] == MultiBinary((2,))
    assert env.spec.observation["a"].high.tolist() == [9, 9]
    check(env)


class Endless:
    def __repr__(self):
        return "Endless()"


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"seen": Endless()}, ["observations", "got a Endless", "Box, Discrete"]),
        ({"done": Endless()}, ["actions", "got a Endless", "Discrete or Box"]),
        (
            {"done": spaces.Tuple([spaces.Discrete(2)])},
            ["actions", "got a Tuple", "rondel.envs.jax.episodic"],
        ),
    ],
)
def test_other_spaces_are_refused_by_name(parts, words):
    with pytest.raises(RondelError) as caught:
        changed(**parts)
    assert all(word in str(caught.value) for word in ["mine:changed", *words]), str(caught.value)


def test_spaces_become_rondels():
    floats = jax.ShapeDtypeStruct((3,), jnp.float32)
    box = observation_spec(spaces.Box(0, 1, (3,), jnp.int32), floats, "x")
    assert (box.low.tolist(), box.high.tolist(), box.dtype) == ([0] * 3, [1] * 3, "float32")
    assert action_spec(spaces.Discrete(4), "x") == Discrete(4)
    assert action_spec(spaces.Box(-2, 2, (1,)), "x").high.tolist() == [2]


@pytest.fixture
def register():
    """gymnax.register, undone after the test."""
    added = []

    def add(name, factory):
        added.append(name)
        gymnax.register(name, factory)

    yield add
    for name in added:
        gymnax.registered_envs.remove(name)
        del gymnax.registration._registry[name]


def test_what_a_user_registers_is_found(register):
    register("Mine-v0", lambda: gymnax.make("Catch-bsuite")[0])
    assert "Mine-v0" in known_ids()["gymnax"]
    check(make("gymnax:Mine-v0"))


def test_what_cannot_be_made_says_why(register):
    register("Broken-v0", lambda: {}["x"])
    with pytest.raises(EnvError, match="gymnax:Broken-v0 can't be made: KeyError"):
        make("gymnax:Broken-v0")


def test_an_environment_without_separate_time_limits_is_refused(register):
    class Old:
        default_params = reset = step = None

    register("Old-v0", Old)
    with pytest.raises(RondelError, match=r"is_truncated.*1\.0\.1.*pip install"):
        make("gymnax:Old-v0")
