"""The Gymnasium adapter, step by step against raw Gymnasium environments."""

import copy
import pickle
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import (
    DtypeObservation,
    FrameStackObservation,
    RecordEpisodeStatistics,
    TransformReward,
)

from envs.strange import Nested, Plain, broken
from rondel.envs.errors import EnvError
from rondel.envs.guard.check import check
from rondel.envs.guard.sampling import leaves, random_action
from rondel.envs.gymnasium.lanes import Lanes
from rondel.envs.gymnasium.spaces import action_spec, translator
from rondel.envs.registry import make
from rondel.errors import RondelError
from rondel.spaces import Box, Discrete, MultiBinary, MultiDiscrete

SEEDS = [5, 6, 7]
MOST = float(np.finfo(np.float32).max)


def raw(source):
    return gymnasium.make(source) if isinstance(source, str) else source()


def plain(obs, info):
    return obs


def masked(obs, info):
    return {"observation": obs, "action_mask": info["action_mask"]}


def nested(obs, info):
    first, second = obs["pair"]
    return obs | {"pair": (first - 2, second - np.array([1, 10]))}


CASES = [  # where it comes from, what its raw observations become, what its raw actions are
    ("CartPole-v1", plain, int),
    ("Pendulum-v1", plain, lambda action: -2 + (action + 1) * 0.5 * 4),
    ("FrozenLake-v1", plain, int),
    ("Blackjack-v1", plain, int),
    ("Taxi-v4", masked, int),
    (Nested, nested, lambda action: action + np.array([0, 4])),
]


@pytest.mark.parametrize(("source", "seen", "said"), CASES, ids=lambda case: str(case)[:12])
def test_steps_equal_those_of_raw_environments(source, seen, said):
    world = make(f"gymnasium:{source}" if isinstance(source, str) else source)
    host, twins = world.make(3), [raw(source) for _ in SEEDS]
    observation = world.spec.observation

    def same(record, lane, obs):
        for (_, space, ours), (_, _, theirs) in zip(
            leaves(observation, record.obs), leaves(observation, obs), strict=True
        ):
            assert ours.shape == (3, *space.shape)
            assert ours.dtype == space.dtype
            np.testing.assert_array_equal(ours[lane], np.asarray(theirs, space.dtype))

    record = host.reset(np.array(SEEDS))
    for lane, (twin, seed) in enumerate(zip(twins, SEEDS, strict=True)):
        same(record, lane, seen(*twin.reset(seed=seed)))
    assert record.first.all()
    random, ends = np.random.default_rng(0), 0
    over, totals, lengths = [False] * 3, [0.0] * 3, [0] * 3
    for _ in range(450):
        action = random_action(world.spec.action, 3, random)
        record = host.step(action)
        for lane, twin in enumerate(twins):
            assert record.first[lane] == over[lane]
            if over[lane]:
                obs, info = twin.reset()
                reward, terminated, truncated = 0.0, False, False
                over[lane], totals[lane], lengths[lane] = False, 0.0, 0
            else:
                obs, reward, terminated, truncated, info = twin.step(said(action[lane]))
                over[lane] = terminated or truncated
                totals[lane] += reward
                lengths[lane] += 1
                ends += over[lane]
            same(record, lane, seen(obs, info))
            assert record.reward[lane] == np.float32(reward)
            assert (record.terminated[lane], record.truncated[lane]) == (terminated, truncated)
        np.testing.assert_allclose(record.episode_return, totals, rtol=1e-6)
        np.testing.assert_array_equal(record.episode_length, lengths)
    assert ends >= 3
    host.close()


def test_a_time_limit_is_a_truncation_of_the_whole_timeline():
    host = make("gymnasium:Pendulum-v1").make(1)
    host.reset([0])
    steps = [host.step(np.zeros((1, 1), np.float32)) for _ in range(202)]
    assert [t for t, step in enumerate(steps) if step.truncated[0]] == [199]
    assert [t for t, step in enumerate(steps) if step.first[0]] == [200]
    assert steps[199].episode_length[0] == 200
    assert steps[201].episode_length[0] == 1
    assert not any(step.terminated[0] for step in steps)


def test_lanes_do_not_depend_on_how_they_are_split():
    world = make("gymnasium:CartPole-v1")
    whole, part = world.make(8), world.make(4)
    seeds = np.arange(100, 108)
    a, b = whole.reset(seeds), part.reset(seeds[4:])
    random = np.random.default_rng(0)
    for _ in range(200):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x[4:], y)
        action = random_action(world.spec.action, 8, random)
        a, b = whole.step(action), part.step(action[4:])


def test_arrays_are_fresh_each_step():
    host = make("gymnasium:CartPole-v1").make(2)
    first = host.reset([0, 1])
    kept = copy.deepcopy(first)
    second = host.step(np.array([0, 1]))
    for old, new, array in zip(first, second, kept, strict=True):
        assert not np.shares_memory(old, new)
        np.testing.assert_array_equal(old, array)


def test_spaces_become_rondels():
    spec = make(Nested).spec
    assert spec.id == "own:Nested"
    image, wide, whole = (spec.observation[name] for name in ("image", "wide", "whole"))
    assert (image.dtype, wide.dtype, whole.dtype) == ("uint8", "float32", "int32")
    assert spec.observation["pair"] == (Discrete(3, 2), MultiDiscrete((2, 3)))
    assert spec.observation["flags"] == MultiBinary((3,))
    assert spec.action == MultiDiscrete((2, 3))


def test_masks_are_flags_wherever_they_come_from():
    assert make("gymnasium:Taxi-v4").spec.observation["action_mask"] == MultiBinary((6,))
    own = spaces.Dict({"action_mask": spaces.Box(0, 1, (2,), np.int8), "x": spaces.Discrete(2)})
    env = broken(
        observation_space=own, obs=lambda _: {"action_mask": np.array([0, 1], np.int8), "x": 1}
    )
    world = make(env)
    assert world.spec.observation == {"action_mask": MultiBinary((2,)), "x": Discrete(2)}
    assert world.make(1).reset([0]).obs["action_mask"].tolist() == [[0, 1]]


def test_a_mask_for_several_choices_is_one_row():
    mask = (np.array([1, 0], np.int8), np.array([0, 1, 1], np.int8))
    env = broken(
        action_space=spaces.MultiDiscrete([2, 3]),
        reset=lambda self, **_: (np.zeros(2, np.float32), {"action_mask": mask}),
    )
    assert make(env).make(1).reset([0]).obs["action_mask"].tolist() == [[1, 0, 0, 1, 1]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_never_leave_their_bounds(dtype):
    # 0.1 is no binary fraction: as a float32 it lies above the float64 bound
    space = spaces.Box(-0.3, 0.1, (1,), dtype)
    extremes = translator(space)(np.array([[-1], [1], [-7], [7], [0.999999]], np.float32))
    assert extremes.dtype == dtype
    assert all(space.contains(action) for action in extremes)
    np.testing.assert_allclose(extremes[:2, 0], [-0.3, 0.1], rtol=1e-6)


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(-1e308, 1e308, np.float64), (0.0, 1e39, np.float64), (-MOST, MOST, np.float32)],
)
def test_bounds_beyond_32_bits_are_none(low, high, dtype):
    space = spaces.Box(low, high, (2,), dtype)
    spec, action = action_spec(space, "mine"), np.array([[0.25, 7.0]], np.float32)
    assert np.isinf(spec.high).all()
    said = translator(space)(action)
    np.testing.assert_array_equal(said, action)
    np.testing.assert_array_equal(said, spec.to_env(action))


def test_discrete_actions_count_from_where_the_environment_does():
    heard = []
    env = broken(
        action_space=spaces.Discrete(3, start=-1),
        step=lambda self, action: (heard.append(action), Plain.step(self, action))[1],
    )
    host = make(env).make(2)
    host.reset([0, 1])
    host.step(np.array([0, 2], np.int32))
    assert heard == [-1, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"observation_space": spaces.Text(5)}, ["got a Text", "Use Box, Discrete"]),
        ({"observation_space": spaces.Sequence(spaces.Discrete(2))}, ["Sequence", "Wrapper"]),
        ({"action_space": spaces.MultiBinary(2)}, ["MultiBinary", "MultiDiscrete or Box"]),
    ],
)
def test_other_spaces_are_refused_by_name(change, words):
    with pytest.raises(RondelError) as caught:
        make(broken(**change))
    assert all(word in str(caught.value) for word in words)


def test_an_autoreset_wrapper_does_not_reset_twice():
    def wrapped():
        return gymnasium.wrappers.Autoreset(gymnasium.make("CartPole-v1"))

    a, b = make("gymnasium:CartPole-v1").make(1), make(wrapped).make(1)
    for x, y in zip(a.reset([0]), b.reset([0]), strict=True):
        np.testing.assert_array_equal(x, y)
    for _ in range(60):
        for x, y in zip(a.step(np.array([1])), b.step(np.array([1])), strict=True):
            np.testing.assert_array_equal(x, y)


def test_a_failing_environment_says_where_and_keeps_its_traceback():
    def step(self, action):
        if action == 1:
            raise ZeroDivisionError("the user's own bug")
        return Plain.step(self, action)

    world = make(broken(step=step))
    host = world.make(2, first_lane=8)
    host.reset([40, 41])
    host.step(np.array([0, 0]))
    with pytest.raises(EnvError) as caught:
        host.step(np.array([0, 1]))
    for words in (
        "Broken",
        "ZeroDivisionError",
        "in step",
        "last action 1",
        "lane 9",
        "seed 41",
        "after 1 steps",
    ):
        assert words in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.__cause__.__traceback__.tb_next.tb_frame.f_code.co_name == "step"
    pickle.loads(pickle.dumps(caught.value))


def test_a_failing_reset_says_so():
    calls = iter(range(9))

    def reset(self, *, seed=None, options=None):
        if next(calls) == 2:
            raise OSError("gone")
        return Plain.reset(self, seed=seed)

    with pytest.raises(EnvError, match=r"OSError in reset: gone \(lane 1, seed 4"):
        make(broken(reset=reset)).make(3).reset([3, 4, 5])


def test_closing_closes_every_environment():
    closed = []

    def close(self):
        closed.append(self)
        raise OSError("stuck")

    envs = [broken(close=close)() for _ in range(3)]
    with pytest.raises(EnvError, match="stuck"):
        Lanes(envs, make(Plain).spec).close()
    assert closed == envs


def test_boxes_keep_their_bounds():
    box = make("gymnasium:Pendulum-v1").spec.action
    assert isinstance(box, Box)
    assert (box.low.tolist(), box.high.tolist()) == ([-2.0], [2.0])


def stacked(padding="reset", around=lambda env: env):
    env = FrameStackObservation(gymnasium.make("CartPole-v1"), 3, padding_type=padding)
    return around(env)


@pytest.mark.parametrize(
    ("make_one", "frames"),
    [
        (stacked, 3),
        (partial(stacked, around=RecordEpisodeStatistics), 3),
        (partial(stacked, around=partial(TransformReward, func=lambda r: 2 * r)), 3),
        (partial(stacked, padding="zero"), 1),  # an episode doesn't begin with one frame only
        (partial(stacked, around=partial(DtypeObservation, dtype=np.float64)), 1),
        (partial(stacked, around=gymnasium.Wrapper), 1),  # who knows what it does
    ],
)
def test_stacked_frames_are_known_where_they_are_those_of_the_space(make_one, frames):
    world = make(make_one)
    assert world.spec.observation.shape == (3, 4)
    assert world.spec.observation.frames == frames
    check(world)


def test_each_box_of_a_tree_stacks_frames():
    spec = make(lambda: FrameStackObservation(Nested(), 2)).spec
    boxes = [box for _, box, _ in leaves(spec.observation, spec.observation) if type(box) is Box]
    assert boxes
    assert {box.frames for box in boxes} == {2}


class Leaves(gymnasium.Env):
    """Ends the program in its second step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        if self.t == 2:
            raise SystemExit(5)
        return np.zeros(2, np.float32), 0.0, False, False, {}


def test_an_environment_that_ends_the_program_is_named(request):
    gymnasium.register("rondel-test/Leaves-v0", entry_point=Leaves)
    request.addfinalizer(lambda: gymnasium.registry.pop("rondel-test/Leaves-v0"))
    host = make("gymnasium:rondel-test/Leaves-v0").make(2)
    host.reset([1, 2])
    host.step(np.zeros(2, np.int32))
    with pytest.raises(EnvError, match=r"raised SystemExit in step: 5 \(lane 0, .* action 0"):
        host.step(np.zeros(2, np.int32))


class Shrinks(gymnasium.Env):
    """From its third step on it sees something of another shape."""

    observation_space = spaces.Box(-1.0, 1.0, (3,))
    action_space = spaces.Discrete(2)

    def __init__(self, later):
        self.later, self.steps = later, 0

    def reset(self, seed=None, options=None):
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        obs = np.ones(3, np.float32) if self.steps < 3 else self.later
        return obs, 0.0, False, False, {}


@pytest.mark.parametrize("later", [7.0, np.ones(1), np.ones(2), np.ones((1, 3)), [1.0]])
def test_an_observation_of_another_shape_is_never_spread_over_its_row(later):
    lanes = make(partial(Shrinks, later)).make(2)
    lanes.reset([1, 2])
    for _ in range(2):
        lanes.step(np.zeros(2, np.int32))
    told = r"own:Shrinks returned an observation of shape .* instead of \(3,\), in step \(lane 0"
    with pytest.raises(EnvError, match=told):
        lanes.step(np.zeros(2, np.int32))
