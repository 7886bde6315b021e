"""Networks of the user's own."""

import sys
from dataclasses import dataclass
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rondel
from rondel.algorithms import ppo
from rondel.errors import RondelError
from rondel.nets.torso import own_torso
from rondel.spaces import Box
from rondel.types import Network

SMALL = {"lanes": 8, "rollout": 8, "epochs": 1, "minibatches": 1, "steps": 200, "tuned": False}


def init(key):
    return {"w": jax.random.normal(key, (4, 6))}


def apply(params, obs):
    return jnp.tanh(obs @ params["w"])


def of_space(space):
    assert space.shape == (4,)
    return init, apply


def three_axes(space):
    _, _, _ = space.shape
    return init, apply


def started(network, **fields):
    return rondel.start("ppo", "CartPole-v1", network=network, **SMALL | fields)


@pytest.mark.parametrize("network", [(init, apply), Network(init, apply), of_space])
def test_a_pair_or_a_function_of_the_space(network):
    with started(network) as run:
        assert run.state.params["torso"]["w"].shape == (4, 6)
        before = np.array(run.state.params["torso"]["w"])
        for _ in run.rounds():
            pass
        assert (np.asarray(run.state.params["torso"]["w"]) != before).any()


def test_dqn_takes_one_and_has_its_streams_behind_it():
    fields = {"rollout": 4, "updates": 2, "batch": 8, "capacity": 100, "warmup": 0, "hidden": (5,)}
    fields |= {"lanes": 8, "steps": 100, "dueling": True, "tuned": False}
    with rondel.start("dqn", "CartPole-v1", network=of_space, **fields) as run:
        assert run.state.params["value"][0]["w"].shape == (6, 5)
        before = np.array(run.state.params["torso"]["w"])
        for _ in run.rounds():
            pass
        assert (np.asarray(run.state.params["torso"]["w"]) != before).any()


def test_it_may_have_a_memory_behind_it():
    with started(of_space, memory="gru", memory_size=5, sequence=4) as run:
        assert run.state.params["memory"]["x"]["w"].shape == (6, 15)
        next(run.rounds())


def test_it_goes_to_other_processes():
    with started((init, apply), plan="actor | learner", on="processes") as run:
        next(run.rounds())
        there = run.state.params["torso"]["w"]
    with started((init, apply)) as run:
        next(run.rounds(at_a_time=1))
        np.testing.assert_array_equal(there, run.state.params["torso"]["w"])


def test_rows_may_have_any_leading_axes():
    space = {"a": Box(-np.ones(4), np.ones(4)), "b": Box(np.zeros((2, 2)), np.ones((2, 2)))}
    network = Network(
        init, lambda params, obs: obs["a"] @ params["w"] + obs["b"].sum((1, 2))[:, None]
    )
    torso, width = own_torso(network, space)
    params = init(jax.random.key(0))
    obs = {"a": jnp.ones((5, 3, 4)), "b": jnp.ones((5, 3, 2, 2))}
    assert width == 6
    np.testing.assert_allclose(torso.apply(params, obs), jnp.ones((5, 3, 4)) @ params["w"] + 4.0)


@pytest.fixture
def module(monkeypatch):
    made = ModuleType("a_module_of_mine")
    made.mine = of_space
    monkeypatch.setitem(sys.modules, made.__name__, made)


def test_a_file_never_says_what_is_imported(module, tmp_path):
    with started("a_module_of_mine:mine") as run:
        next(run.rounds())
        saved = run.save(tmp_path / "there")
    with pytest.raises(RondelError, match="network of your own, 'a_module_of_mine:mine': pass it"):
        rondel.load(saved)
    with rondel.load(saved, network="a_module_of_mine:mine") as again:
        assert again.steps > 0
    with rondel.load(saved, network=(init, apply)) as again:
        assert again.steps > 0


@pytest.mark.parametrize(
    ("network", "words"),
    [
        ("nowhere_at_all:x", "nowhere_at_all can't be imported"),
        (":x", "can't be imported"),
        ("a_module_of_mine:x", "a_module_of_mine has no 'x'"),
        ("a_module_of_mine:", "a_module_of_mine has no ''"),
        ((init,), r"network must be a pair \(init, apply\)"),
        (lambda space: 7, "such a pair, got 7"),
        (
            three_axes,
            r"own:three_axes can't make a network for observations float32\[4\]: ValueError: not",
        ),
        ((init, lambda params, obs: obs.sum()), r"must return features .*, got float32\[\]"),
        (
            (init, lambda params, obs: obs @ jnp.ones((9, 2))),
            r"can't take observations float32\[3, 4\]",
        ),
        ("natur", "auto, mlp, nature, impala"),
    ],
)
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_what_is_no_network_gets_a_sentence(module, algorithm, network, words):
    with pytest.raises(RondelError, match=words):
        rondel.start(algorithm, "CartPole-v1", network=network)


def test_observations_may_be_tuples():
    space = (Box(-np.ones(4), np.ones(4)), Box(-np.ones(2), np.ones(2)))
    network = Network(init, lambda params, obs: obs[0] @ params["w"] + obs[1].sum(1)[:, None])
    torso, width = own_torso(network, space)
    seen = torso.apply(init(jax.random.key(0)), (jnp.ones((5, 3, 4)), jnp.ones((5, 3, 2))))
    assert seen.shape == (5, 3, width)


@dataclass(frozen=True)
class Config:
    """One that has a `network` of another kind."""

    network: tuple[int, ...] | None = None


def test_another_algorithm_may_mean_something_else_by_the_name():
    seen = []

    def make(config, spec):
        seen.append(config.network)
        return ppo.make(ppo.Config(rollout=8, minibatches=1, epochs=1), spec)

    for given in (None, (64, 64)):
        rondel.start(make, "CartPole-v1", config=Config(), network=given).close()
    assert seen == [None, (64, 64)]
