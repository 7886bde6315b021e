"""A2C: its gradient by hand, in a policy of biases alone."""

import jax.numpy as jnp
import numpy as np
import pytest

from rondel.algorithms import a2c, a3c
from rondel.algorithms.actor_critic import Rows
from rondel.ops import random
from rondel.spaces import Box, Discrete
from rondel.types import EnvSpec

TWO = Box(np.full(2, -1.0, np.float32), np.ones(2, np.float32))
SPEC = EnvSpec("test:discrete", TWO, Discrete(3), lanes=2)
ROWS = Rows(
    obs=jnp.zeros((4, 2)),
    action=jnp.array([0, 1, 1, 2]),
    log_prob=jnp.zeros(4),
    value=jnp.array([1.0, 2.0, 3.0, 50.0]),
    advantage=jnp.array([6.0, 3.0, 0.0, 99.0]),
    valid=jnp.array([True, True, True, False]),
)


def gradient(module=a2c, **fields):
    algorithm = module.make(module.Config(hidden=(), entropy_cost=0.0, **fields), SPEC)
    params = algorithm.init(random.key(0)).params
    return algorithm.gradient(params, ROWS, random.key(0))


@pytest.mark.parametrize("module", [a2c, a3c])
def test_the_gradient_by_hand(module):
    grads, weight, _, metrics = gradient(module, value_cost=2.0)
    # d log π(a) / d bias = onehot(a) - 1/3; minus the mean of A = 6, 3, 0 times that:
    # action 0: -(6 * 2/3 - 3/3) / 3 = -1; action 1: -(-6/3 + 3 * 2/3) / 3 = 0; action 2: 1
    np.testing.assert_allclose(grads["policy"][0]["b"], [-1.0, 0.0, 1.0], atol=1e-6)
    # the value is 0, the targets are 1 + 6, 2 + 3, 3 + 0: 2 * mean of (0 - target) = -2 * 15 / 3
    np.testing.assert_allclose(grads["critic"][0]["b"], [-10.0], rtol=1e-6)
    assert float(weight) == 3.0
    # (49 + 25 + 9) / 2 / 3
    assert float(metrics["loss/value"]) == pytest.approx(83 / 6)
    assert float(metrics["entropy"]) == pytest.approx(np.log(3))


def test_advantages_are_standardised_over_valid_rows_and_targets_are_not():
    grads, _, _, metrics = gradient(normalise_advantage=True)
    # (6, 3, 0) - 3 over its deviation sqrt(6): z, 0, -z with z = 3 / sqrt(6)
    z = 3 / np.sqrt(6)
    # action 0: -(z * 2/3 + z/3) / 3; action 1: -(-z/3 - z * 2/3) / 3; action 2: 0
    np.testing.assert_allclose(grads["policy"][0]["b"], [-z / 3, z / 3, 0.0], atol=1e-6)
    assert float(metrics["loss/value"]) == pytest.approx(83 / 6)


def test_a3c_takes_a_lag_and_a2c_none():
    lags = [module.make(module.Config(), SPEC).max_lag for module in (a2c, a3c)]
    assert lags == [0, 16]
