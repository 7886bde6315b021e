"""Asking a policy for actions."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rondel
from rondel.execution.hostenv.seeds import Purpose
from rondel.ops.random import per_lane, purpose_key
from rondel.run.policy.policy import Policy

SMALL: dict[str, Any] = {"hidden": (8,)}
FORGETS = {
    "ppo": "Pendulum-v1",
    "dqn": "CartPole-v1",
    "rainbow": "CartPole-v1",
    "sac": "Pendulum-v1",
}


@pytest.mark.parametrize("explore", [False, True])
@pytest.mark.parametrize("algorithm", FORGETS)
def test_actions_are_the_algorithms_own(algorithm: str, explore: bool) -> None:
    policy = rondel.start(algorithm, FORGETS[algorithm], steps=1, tuned=False, **SMALL).policy
    shape = policy.spec.observation.shape
    obs = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
    lane = jnp.arange(3)
    for nth in range(3):
        keys = per_lane(purpose_key(7, Purpose.EVALUATE, 2, nth if explore else 0), lane)
        carry = policy.algorithm.carry(lane)
        action, _, _ = policy.algorithm.act(policy.weights, carry, obs, keys, explore)
        expected = policy.spec.action.to_env(np.asarray(action))
        np.testing.assert_allclose(policy.act(obs, explore=explore, seed=7), expected, rtol=1e-6)


def test_a_policy_that_remembers_gives_its_carry_and_takes_it_back() -> None:
    policy = rondel.start("ppo", "CartPole-v1", steps=1, memory="gru", **SMALL).policy
    obs = np.ones(4, np.float32)
    first, carry = policy.act(obs)
    _, after = policy.act(obs, carry)
    before, after = (np.asarray(jax.tree.leaves(tree)[0]) for tree in (carry, after))
    assert first in (0, 1)
    assert np.abs(before - after).max() > 0


def test_a_carry_keeps_no_hold_of_the_callers_observation() -> None:
    policy = rondel.start("ppo", "CartPole-v1", steps=1, **SMALL).policy

    def remember(_w: Any, _c: Any, obs: Any, _k: Any, _e: bool) -> tuple[Any, Any, Any]:
        return obs[:, 0], obs, {}

    algorithm = policy.algorithm._replace(
        act=remember, carry=lambda lane: jnp.zeros((len(lane), 4))
    )
    obs = np.ones((64, 4), np.float32)
    _, carry = Policy(algorithm, policy.spec, policy.weights).act(obs)
    obs[:] = -100
    np.testing.assert_array_equal(carry, 1)


def test_policies_of_a_run_share_one_program() -> None:
    """`run.policy` in a loop compiles once for each shape, greedy or not."""
    run = rondel.start("ppo", "CartPole-v1", steps=1, **SMALL)
    for _ in range(3):
        run.policy.act(np.ones(4))
        run.policy.act(np.ones(4), explore=True)
    assert run.policy._choose._cache_size() == 2
