"""Made-up experience with the timeline of `rondel.types`, cut into rounds."""

import jax
import numpy as np
import pytest

from rondel.types import Trajectory


class Stream:
    """Rows [rows, lanes] of random episodes. The step after an end only resets: it is not valid."""

    def __init__(self, rows, lanes, actions=3, features=2, seed=0, scale=1.0):
        rng = np.random.default_rng(seed)
        shape = (rows, lanes)
        self.lanes = lanes
        self.obs = rng.normal(size=(rows + 1, lanes, features)).astype(np.float32) * scale
        self.action = rng.integers(0, actions, shape).astype(np.int32)
        self.reward = rng.normal(size=shape).astype(np.float32) * scale
        self.terminated, self.truncated, ends = np.zeros(shape, bool), np.zeros(shape, bool), None
        self.valid = np.ones(shape, bool)
        for t in range(rows):
            if t:
                self.valid[t] = ~ends
            chance = rng.random(lanes)
            self.terminated[t] = self.valid[t] & (chance < 0.15)
            self.truncated[t] = self.valid[t] & (chance > 0.85)
            ends = self.terminated[t] | self.truncated[t]
        self.reward[~self.valid] = 0.0
        self.log_prob = rng.uniform(-2.0, -0.5, shape).astype(np.float32)

    def round(self, r, length, overlap=0, extras=None):
        """Round r as a trajectory; before the first row there are rows that don't count."""
        before = max(0, overlap - r * length)
        start, end = r * length - overlap + before, (r + 1) * length

        def rows(x, end=end):
            x = x[start:end]
            return np.concatenate([np.zeros((before, *x.shape[1:]), x.dtype), x])

        first = np.concatenate([np.ones((1, self.lanes), bool), ~self.valid])
        return Trajectory(
            obs=rows(self.obs, end + 1),
            first=rows(first, end + 1),
            action=rows(self.action),
            reward=rows(self.reward),
            terminated=rows(self.terminated),
            truncated=rows(self.truncated),
            valid=rows(self.valid),
            extras=() if extras is None else rows(extras),
            carry=(),
            lane=np.arange(self.lanes),
        )


@pytest.fixture
def stream():
    return Stream


@pytest.fixture
def slopes():
    """`slopes(value, params)`: the derivative of a NumPy function by every number of a tree."""

    def of(value, params):
        leaves, tree = jax.tree.flatten(jax.tree.map(np.float64, params))
        out = [np.zeros(leaf.shape) for leaf in leaves]
        for leaf, slope in zip(leaves, out, strict=True):
            for place in np.ndindex(leaf.shape):
                middle = leaf[place]
                leaf[place] = middle + 1e-6
                up = value(jax.tree.unflatten(tree, leaves))
                leaf[place] = middle - 1e-6
                slope[place] = (up - value(jax.tree.unflatten(tree, leaves))) / 2e-6
                leaf[place] = middle
        return jax.tree.unflatten(tree, out)

    return of
