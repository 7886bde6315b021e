"""A broken environment is explained in one sentence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from envs.strange import Nested, Plain, broken
from rondel.envs.errors import EnvError
from rondel.envs.guard.check import check
from rondel.envs.guard.sampling import random_action
from rondel.envs.jax.episodic import episodic
from rondel.envs.registry import make
from rondel.errors import RondelError
from rondel.spaces import Box, Discrete, MultiDiscrete
from rondel.types import EnvSpec, HostWorld


@pytest.mark.parametrize(
    "sound",
    [
        "CartPole-v1",
        "probe:memory",
        "probe:continuous",
        "gymnasium:Taxi-v4",
        "gymnasium:Pendulum-v1",
        Plain,
        Nested,
    ],
)
def test_sound_environments_pass(sound):
    check(make(sound))


def returning(*result):
    return lambda *_: result if len(result) != 1 else result[0]


OBS = np.zeros(2, np.float32)


def old_reset(self):
    return self.obs(), {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"obs": returning(np.zeros(3, np.float32))}, ["must have shape (2,)", "got (3,)"]),
        ({"obs": returning(np.array(["a", "b"]))}, ["must have dtype float32, got <U1"]),
        ({"obs": returning([[1.0], [1.0, 2.0]])}, ["The observation from"]),
        ({"obs": returning(np.array([0, np.nan]))}, ["must be finite"]),
        ({"obs": returning(np.array([0, np.inf]))}, ["must be finite"]),
        ({"obs": returning(np.array([0, 1.5]))}, ["outside", "1.5", "-1 and 1"]),
        (
            {"observation_space": spaces.Box(0, 255, (2,), np.uint8), "obs": returning(OBS)},
            ["dtype uint8, got float32"],
        ),
        (
            {
                "observation_space": spaces.Dict({"a": spaces.Discrete(2)}),
                "obs": returning({"b": 1}),
            },
            ["the part 'a'", "got {'b': 1}"],
        ),
        (
            {"observation_space": spaces.Discrete(2), "obs": returning(2)},
            ["outside its space: 2, with bounds 0 and 1"],
        ),
        (
            {"observation_space": spaces.Tuple([spaces.Discrete(2)]), "obs": returning(1)},
            ["the part 0", "got 1"],
        ),
        ({"reset": lambda self, **_: self.obs()}, ["reset()", "ndarray", "(observation, info)"]),
        ({"reset": old_reset}, ["must take a seed"]),
        ({"step": returning(OBS, 1.0, False, {})}, ["step()", "tuple of 4", "truncated"]),
        ({"step": returning(OBS)}, ["step()", "one ndarray"]),
        ({"step": returning(OBS, "1", False, False, {})}, ["reward", "number, got '1'"]),
        ({"step": returning(OBS, OBS, False, False, {})}, ["reward", "number"]),
        ({"step": returning(OBS, None, False, False, {})}, ["reward", "number, got None"]),
        ({"step": returning(OBS, np.nan, False, False, {})}, ["reward", "finite, got nan"]),
        ({"step": returning(OBS, 1.0, 0, False, {})}, ["terminated from step()", "bool, got 0"]),
        (
            {"step": returning(OBS, 1.0, False, "no", {})},
            ["truncated from step()", "got 'no'"],
        ),
        ({"step": returning(OBS, 1.0, False, False, None)}, ["with a dict as info"]),
        ({"step": lambda *_: {}["x"]}, ["KeyError", "in step"]),
        ({"obs": lambda _: np.random.uniform(-1, 1, 2)}, ["same seed and actions", "np_random"]),  # noqa: NPY002
    ],
)
def test_a_broken_gymnasium_environment(change, words):
    with pytest.raises(RondelError) as caught:
        check(make(broken(**change)))
    sentence = str(caught.value)
    assert "Broken" in sentence
    assert all(word in sentence for word in words), sentence


SPEC = EnvSpec("mine:broken", Box(-np.ones(2, np.float32), np.ones(2, np.float32)), Discrete(2))


def traceable(**functions):
    sound = {
        "start": lambda keys: jnp.zeros((*keys.shape, 2)),
        "move": lambda x, action: (x, jnp.ones_like(x[:, 0]), x[:, 0] > 0),
        "observe": lambda x: x,
    }
    return episodic(SPEC, **(sound | functions))


def test_a_sound_traceable_environment_passes():
    check(traceable())


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (traceable(observe=lambda x: x[:, :1]), ["Step.obs", "shape (2, 1)", "(2, 2)"]),
        (traceable(observe=lambda x: x.astype(int)), ["Step.obs", "int32", "float32"]),
        (traceable(observe=lambda x: x + jnp.nan), ["must be finite"]),
        (traceable(observe=lambda x: x + 2), ["outside", "2", "bounds -1 and 1"]),
        (traceable(move=lambda x, a: (x, x[:, 0] / 0, x[:, 0] > 0)), ["Rewards", "finite"]),
        (
            traceable(move=lambda x, a: (x, a, a > 9))._replace(step=lambda s, a: s),
            ["(state, Step)"],
        ),
        (traceable()._replace(init=lambda keys: keys), ["init()", "(state, Step)"]),
    ],
)
def test_a_broken_traceable_environment(env, words):
    with pytest.raises(RondelError) as caught:
        check(env)
    sentence = str(caught.value)
    assert "mine:broken" in sentence
    assert all(word in sentence for word in words), sentence


def test_only_allowed_actions_are_tried():
    mask = np.array([0, 0, 1, 0], np.int8)

    def reset(self, *, seed=None, options=None):
        return Plain.reset(self, seed=seed)[0], {"action_mask": mask}

    def step(self, action):
        assert action == 2
        return (*Plain.step(self, action)[:4], {"action_mask": mask})

    check(make(broken(action_space=spaces.Discrete(4), reset=reset, step=step)))


def test_an_instance_can_be_trained_on_after_it_was_checked():
    def refuse(self, memo):
        raise TypeError("no copies")

    world = make(broken(__deepcopy__=refuse)())
    check(world)
    world.make(1).reset([0])


def test_a_traceable_environment_that_raises_keeps_its_traceback():
    with pytest.raises(EnvError, match=r"step\(\) of mine:broken raised KeyError") as caught:
        check(traceable(move=lambda x, action: {}["x"]))
    assert isinstance(caught.value.__cause__, KeyError)


def test_random_actions_obey_masks():
    random = np.random.default_rng(0)
    mask = np.array([[1, 0, 0, 1, 1], [0, 1, 1, 0, 0]])
    for _ in range(50):
        first, second = random_action(MultiDiscrete((2, 3)), 2, random, mask)
        assert first[0] == 0
        assert first[1] in (1, 2)
        assert second.tolist() == [1, 0]
        assert random_action(Discrete(5), 2, random, mask)[1] in (1, 2)


def test_a_state_that_changes_its_structure():
    env = traceable()

    def step(state, action):
        state, record = env.step(state, action)
        return (state, action), record

    with pytest.raises(RondelError, match=r"must keep the structure"):
        check(env._replace(step=step))


def test_a_broken_host_world():
    class Host:
        def reset(self, seeds):
            return "nothing"

        def close(self):
            pass

    with pytest.raises(
        RondelError, match=r"reset\(\) of mine:broken must return a Step, got a str"
    ):
        check(HostWorld(SPEC, lambda b, first_lane: Host()))


def stacking(observe):
    """A walk that sees its last three places: those of `observe` (places [b, 3])."""
    space = Box(np.zeros((3, 1), np.float32), np.full((3, 1), 99, np.float32), frames=3)

    def move(places, action):
        places = jnp.concatenate([places[:, 1:], places[:, -1:] + 1.0], axis=1)
        return places, places[:, 0], places[:, -1] > 6.0

    return episodic(
        SPEC._replace(observation={"walk": space}),
        start=lambda keys: jnp.ones((*keys.shape, 3)),
        move=move,
        observe=lambda places: {"walk": observe(places)[..., None]},
    )


def host_twin(env):
    """The same as a host world, which writes every step into the same array."""

    class Host:
        def reset(self, seeds):
            self.state, step = env.init(jax.random.split(jax.random.key(0), len(seeds)))
            self.seen = np.array(step.obs["walk"])
            return self.told(step)

        def step(self, action):
            self.state, step = env.step(self.state, jnp.asarray(action))
            return self.told(step)

        def told(self, step):
            self.seen[:] = step.obs["walk"]
            return jax.tree.map(np.asarray, step)._replace(obs={"walk": self.seen})

        def close(self):
            pass

    return HostWorld(env.spec, lambda b, first_lane: Host())


@pytest.mark.parametrize("world", [lambda env: env, host_twin], ids=["traceable", "host"])
def test_frames_that_keep_their_promise_pass_and_others_are_explained(world):
    check(world(stacking(lambda places: places)))
    rule = r"\['walk'\] from {}\(\) of mine.* must be one frame 3 times"
    step, first = rule.format("step"), rule.format("(init|reset)")
    with pytest.raises(RondelError, match=rf"{step}, or those .* shifted .* frames=3"):
        check(world(stacking(lambda places: places[:, ::-1])))  # the newest first
    with pytest.raises(RondelError, match=rf"{first}, since its space has frames=3\. Without"):
        check(world(stacking(lambda places: places - jnp.array([[1.0, 0.0, 0.0]]))))
