"""EnvPool through its host interface, and through the one for XLA."""

from ctypes.util import find_library
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium import spaces as gym_spaces

import rondel
from envs.rolling import keys, random_actions
from execution.test_equality import assert_equal, run, task
from rondel.envs.envpool import xla_pool
from rondel.envs.envpool.pool import PoolLanes, account, make_pool, nothing_yet, without_bounds
from rondel.envs.guard.check import check
from rondel.envs.gymnasium.spaces import translator
from rondel.envs.registry import make
from rondel.errors import RondelError
from rondel.execution.loop.ring import Ring
from rondel.plan.parser import parse

SEEDS = [5, 6, 7, 8]
EGL = pytest.mark.skipif(find_library("EGL") is None, reason="nothing draws without a screen here")


def raw(name: str, **arguments: Any) -> Any:
    return make_pool("raw", name, arguments, SEEDS)


def host(name: str, seeds: list[int] = SEEDS) -> tuple[Any, Any]:
    lanes = make(name).make(len(seeds), 0)
    return lanes, lanes.reset(seeds)


def test_a_lane_is_what_envpool_plays_with_that_seed():
    pool, (lanes, step) = raw("CartPole-v1"), host("envpool:CartPole-v1")
    np.testing.assert_array_equal(step.obs, pool.reset()[0])
    assert step.first.all()
    over, total, length = np.zeros(4, bool), np.zeros(4), np.zeros(4, int)
    ends = 0
    for action in random_actions(make("envpool:CartPole-v1"), 80, 4):
        obs, reward, terminated, truncated, _ = pool.step(action)
        step = lanes.step(action)
        total, length = np.where(over, 0, total + reward), np.where(over, 0, length + 1)
        np.testing.assert_array_equal(step.first, over)
        np.testing.assert_array_equal(step.obs, obs)
        np.testing.assert_array_equal(step.reward, np.where(over, 0.0, reward))
        np.testing.assert_array_equal(step.terminated, terminated)
        np.testing.assert_array_equal(step.truncated, truncated)
        np.testing.assert_array_equal(step.episode_return, total)
        np.testing.assert_array_equal(step.episode_length, length)
        over = terminated | truncated
        ends += over.sum()
    assert ends > 4
    lanes.close()


def test_a_time_limit_truncates():
    lanes, _ = host("envpool:Pendulum-v1")
    steps = [lanes.step(np.zeros((4, 1), np.float32)) for _ in range(201)]
    assert not any(step.truncated.any() or step.terminated.any() for step in steps[:199])
    assert steps[199].truncated.all()
    assert not steps[199].terminated.any()
    assert (steps[199].episode_length == 200).all()
    assert steps[200].first.all()
    lanes.close()


@pytest.mark.parametrize("name", ["envpool:CartPole-v1", "envpool:Breakout-v5?episodic_life=true"])
def test_a_lane_goes_its_way_whatever_runs_beside_it(name):
    (all_, a), (some, b) = host(name), host(name, SEEDS[2:])
    np.testing.assert_array_equal(a.obs[2:], b.obs)
    for action in random_actions(make(name), 60, 4):
        a, b = all_.step(action), some.step(action[2:])
        for one, two in zip(a, b, strict=True):
            np.testing.assert_array_equal(one[2:], two)
    all_.close()
    some.close()


def test_actions_reach_mujoco_in_its_own_units():
    pool, (lanes, _) = raw("HalfCheetah-v5"), host("envpool:HalfCheetah-v5")
    pool.reset()
    world = make("envpool:HalfCheetah-v5")
    assert world.spec.observation.dtype == "float32"
    for action in random_actions(world, 5, 4):
        obs, reward, *_ = pool.step(action.astype(np.float64))
        step = lanes.step(action)
        np.testing.assert_allclose(step.obs, obs, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(step.reward, reward, rtol=1e-6)
    lanes.close()


def test_games_are_counted_whole_and_unclipped():
    """A game of two lives; rewards 4, 0, -2 are clipped to 1, 0, -1.

    Steps: 4 and the first life is lost; the step that only goes on; 0; -2 and the game is over; the
    step that only resets.
    """
    story = [  # clipped, terminated, game over, reward
        (1.0, True, False, 4.0),
        (0.0, False, False, 0.0),
        (0.0, False, False, 0.0),
        (-1.0, True, True, -2.0),
        (0.0, False, False, 0.0),
    ]
    count, seen = nothing_yet(1), []
    for clipped, terminated, over, reward in story:
        first = count.over
        info = {"terminated": np.array([int(over)]), "reward": np.array([reward])}
        flags = np.array([terminated]), np.array([False])
        count, learned, length = account(np, count, np.array([clipped]), *flags, info)
        seen.append((first[0], learned[0], count.total[0], length[0]))
    assert seen == [
        (False, 1.0, 4.0, 0),  # an end, but of no game
        (True, 0.0, 4.0, 1),
        (False, 0.0, 4.0, 2),
        (False, -1.0, 2.0, 3),
        (True, 0.0, 0.0, 0),
    ]


def test_atari_is_preprocessed_as_usual():
    spec = make("envpool:Breakout-v5").spec
    assert (spec.observation.shape, spec.observation.dtype) == ((4, 84, 84), "uint8")
    lives, _ = host("envpool:Breakout-v5?episodic_life=true")
    games, _ = host("envpool:Breakout-v5?reward_clip=false")
    pool = raw("Breakout-v5", reward_clip=False)
    pool.reset()
    total = np.zeros(4)
    lost = whole = 0
    for action in random_actions(make("envpool:Breakout-v5"), 250, 4):
        step = lives.step(action)
        lost += int((step.terminated & (step.episode_length == 0)).sum())
        whole += int((step.terminated & (step.episode_length > 0)).sum())
        assert set(np.unique(step.reward)) <= {0.0, 1.0}
        after, (_, reward, terminated, truncated, _) = games.step(action), pool.step(action)
        total = np.where(after.first, 0.0, total + reward)
        np.testing.assert_array_equal(after.episode_return, total)
        np.testing.assert_array_equal(after.terminated | after.truncated, terminated | truncated)
    assert lost > whole > 0
    for lanes in (lives, games):
        lanes.close()


FAMILIES = {  # an id of each that needs nothing but EnvPool itself
    "atari": "Breakout-v5",
    "box2d": "LunarLander-v3",
    "classic control": "Pendulum-v1",
    "highway": "highway-v0",
    "jumanji": "MultiCVRP-v0",
    "minigrid": "MiniGrid-Empty-5x5-v0",
    "mujoco, dm_control": "CheetahRun-v1",
    "mujoco, gym": "HalfCheetah-v5",
    "mujoco, metaworld": "MetaWorld/Assembly-v3",
    "mujoco, robotics": "FetchReach-v4",
    "toy text": "Taxi-v3",
}


@pytest.mark.parametrize("name", FAMILIES.values(), ids=list(FAMILIES))
def test_an_environment_of_each_family_keeps_to_its_spec(name):
    check(make(f"envpool:{name}"))


def test_where_envpool_knows_no_bound_there_is_none():
    space = make("envpool:CheetahRun-v1").spec.observation
    assert sorted(space) == ["position", "velocity"]
    for part in space.values():
        assert np.isneginf(part.low).all()
        assert np.isposinf(part.high).all()


def test_actions_without_bounds_pass_as_they_are():
    # so do the actions of VizDoom's ids look
    wide = np.finfo(np.float64)
    space = gym_spaces.Dict({"buttons": gym_spaces.Box(wide.tiny, wide.max, (3,), np.float64)})
    said = np.array([[-1.5, 0.0, 1.0]], np.float32)
    np.testing.assert_array_equal(translator(without_bounds(space)["buttons"])(said), said)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("envpool:Pongg-v5", ["no environment 'envpool:Pongg-v5'", "Did you mean envpool:Pong-v5"]),
        (
            "envpool:Pong-v5?episodc_life=1",
            ["no argument episodc_life", "mean episodic_life?"],
        ),
        ("envpool:Pong-v5?num_envs=3", ["num_envs", "EnvPool gets these from the run"]),
        ("envpool:VizdoomCustom-v1", ["can't be made", "does not exist"]),
        ("envpool-xla:HalfCheetah-v5", ["64 bits", "Use envpool:HalfCheetah-v5"]),
        ("envpool-xla:Pongg-v5", ["Pong-v5"]),
    ],
)
def test_what_cannot_be_gets_a_sentence(asked, words):
    with pytest.raises(RondelError) as caught:
        make(asked)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_arguments_that_are_offered_can_be_given():
    with pytest.raises(RondelError, match=r"It has .*stack_num") as caught:
        make("envpool:Pong-v5?zzz=1")
    assert "seed" not in str(caught.value)
    assert "num_envs" not in str(caught.value)


def test_an_id_that_only_envpool_has_needs_no_world():
    assert make("Pong-v5").spec.id == "envpool:Pong-v5"


def xla(name: str) -> Any:
    env = make(name)
    state, step = env.init(keys(4))
    seeds = np.asarray(jax.random.key_data(keys(4)))[:, -1] & 0x7FFFFFFF
    lanes, first = host(name.replace("-xla", ""), seeds.tolist())
    assert_same(step, first)
    return env, state, lanes


def assert_same(one: Any, two: Any) -> None:
    def same(a: Any, b: Any) -> None:
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)

    jax.tree.map(same, one, two)


@pytest.mark.parametrize(
    "name",
    [
        "envpool-xla:CartPole-v1",
        "envpool-xla:Breakout-v5?episodic_life=true",
        "envpool-xla:MultiCVRP-v0",  # of many parts, one of them bools
        "envpool-xla:Blackjack-v1",
    ],
)
def test_inside_a_program_the_lanes_are_those_of_the_host(name):
    env, state, lanes = xla(name)
    actions = random_actions(env, 60, 4)
    _, steps = jax.jit(lambda s, a: jax.lax.scan(env.step, s, a))(state, actions)
    for t, action in enumerate(actions):
        assert_same(jax.tree.map(lambda x, t=t: x[t], steps), lanes.step(action))
    lanes.close()
    env.close(state)


def test_the_check_passes_and_leaves_no_pool_open():
    open_before = set(xla_pool._pools)
    check(make("envpool-xla:CartPole-v1"))
    check(make("envpool:CartPole-v1"))
    assert set(xla_pool._pools) == open_before


PLANS = ("env*2 | policy | learner", "actor*2 | learner")


@pytest.mark.long
@pytest.mark.parametrize("world", ["envpool", "envpool-xla"])
def test_every_plan_gives_the_same_numbers(world):
    open_before = set(xla_pool._pools)
    env = make(f"{world}:CartPole-v1")
    results = []
    for plan in ("all", *PLANS):
        ring = Ring(task("toy", env), parse(plan))
        results.append(run(ring, 900))
        ring.close()
    for result in results[1:]:
        assert_equal(result, results[0])
    assert "env" not in results[0]
    assert set(xla_pool._pools) == open_before


@pytest.mark.parametrize("world", ["envpool", pytest.param("envpool-xla", marks=pytest.mark.long)])
def test_a_run_goes_on_from_its_checkpoint_in_new_episodes(world, tmp_path):
    def begin() -> Any:
        fields = {"lanes": 8, "rollout": 16, "minibatches": 2, "hidden": (8,)}
        return rondel.start("ppo", f"{world}:CartPole-v1", steps=512, **fields)

    with begin() as run:
        next(run.rounds())
        saved, learned, steps = run.save(tmp_path / "there"), run.state, run.steps
    with begin() as again:
        again.restore(saved)
        assert again.steps == steps < 512
        jax.tree.map(np.testing.assert_array_equal, again.state, learned)
        for _ in again.rounds():
            pass
        assert again.steps >= 512
        assert again.evaluate(4).mean > 0


def test_lanes_have_seeds_of_their_own_pool():
    lanes = PoolLanes(make("envpool:CartPole-v1").spec, "CartPole-v1", {}, 2, 0)
    first = lanes.reset([1, 2])
    lanes.step(np.zeros(2, np.int32))
    np.testing.assert_array_equal(lanes.reset([1, 2]).obs, first.obs)
    assert (lanes.reset([3, 4]).obs != first.obs).any()
    lanes.close()


@pytest.mark.parametrize(
    ("env_id", "action", "shape"),
    [
        ("envpool:Pong-v5", np.int32(2), (210, 160, 3)),
        ("envpool:CartPole-v1", np.int32(1), (400, 600, 3)),
        pytest.param("envpool:CheetahRun-v1", np.ones(6, np.float32), (480, 480, 3), marks=EGL),
    ],
)
def test_a_lane_can_be_looked_at(env_id, action, shape):
    lane = make(env_id).show()
    lane.reset([1])
    before = lane.picture()
    for _ in range(30):
        lane.step(action[None])
    assert (before.shape, before.dtype) == (shape, np.uint8)
    assert (lane.picture() != before).any()
    lane.close()


def test_what_would_end_the_process_is_tried_in_another(tmp_path, monkeypatch):
    # MuJoCo's way to fail: a log in the folder, and an end without an exception
    (tmp_path / "envpool.py").write_text(
        "import os\nfrom pathlib import Path\nPath('MUJOCO_LOG.TXT').touch()\nos._exit(1)\n"
    )
    world = make("envpool:CheetahRun-v1")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    lane = world.show()
    lane.reset([1])
    assert lane.picture() is None
    lane.close()
    assert not (tmp_path / "MUJOCO_LOG.TXT").exists()
