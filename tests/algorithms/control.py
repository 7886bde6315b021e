"""What tests of algorithms for continuous actions share: the networks in NumPy, and a batch."""

import jax
import numpy as np

from rondel.memory.replay import TransitionBatch
from rondel.spaces import Box
from rondel.types import EnvSpec

TWO = Box(np.full(2, -1.0, np.float32), np.ones(2, np.float32))
SPEC = EnvSpec("test:control", TWO, TWO, lanes=4)


def forward(layers, x):
    x = np.asarray(x, np.float64)
    for i, layer in enumerate(layers):
        x = (np.maximum(x, 0.0) if i else x) @ np.asarray(layer["w"], np.float64)
        x = x + np.asarray(layer["b"], np.float64)
    return x


def policy_of(params, obs):
    """What the policy's network says, before anything is squashed."""
    return forward(params["policy"], obs)


def q_of(critics, obs, action):
    """Values [critics, n]."""
    seen = np.concatenate([obs, action], -1)
    many = len(critics["q"][0]["w"])
    each = [jax.tree.map(lambda x, i=i: x[i], critics["q"]) for i in range(many)]
    return np.stack([forward(layers, seen)[..., 0] for layers in each])


def random_like(params, seed):
    """Numbers of a size at which no part of the network is idle."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda p: rng.normal(size=p.shape).astype(np.float32), params)


def a_batch(n=32, seed=3):
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.normal(size=(2, n, 2)).astype(np.float32)
    action = rng.uniform(-1.0, 1.0, (n, 2)).astype(np.float32)
    reward = rng.normal(size=n).astype(np.float32)
    discount = np.where(rng.random(n) < 0.3, 0.0, 0.9).astype(np.float32)
    ratio = rng.uniform(0.2, 3.0, n).astype(np.float32)
    return TransitionBatch(obs, next_obs, action, reward, discount, rng.random(n) < 0.7, ratio)


def mean(x, valid):
    return x[valid].mean()


def close(one, two, rtol=1e-3, atol=1e-4):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), one, two)


def same(one, two):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)
