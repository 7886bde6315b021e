"""REINFORCE: every step counts once, with what its episode really earned; its gradient by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rondel.algorithms import pg
from rondel.ops import random
from rondel.spaces import Box, Discrete
from rondel.types import EnvSpec

TWO = Box(np.full(2, -1.0, np.float32), np.ones(2, np.float32))
SPEC = EnvSpec("test:discrete", TWO, Discrete(3), lanes=2)
LENGTH, ROUNDS = 4, 8


def build(**fields):
    algorithm = pg.make(pg.Config(**{"rollout": LENGTH, "hidden": (3,), **fields}), SPEC)
    return algorithm, algorithm.init(random.key(0))


def learned_from(stream, **fields):
    """(row, lane) -> what it earned, over all rounds of a stream; no row may come twice."""
    algorithm, state = build(**fields)
    prepare = jax.jit(algorithm.prepare)
    earned = {}
    for r in range(ROUNDS):
        items, steps = prepare(state.params, stream.round(r, LENGTH, algorithm.overlap))
        assert steps.tolist() == stream.valid[r * LENGTH : (r + 1) * LENGTH].sum(0).tolist()
        for lane, row in np.argwhere(np.asarray(items.valid)):
            place = r * LENGTH - algorithm.overlap + row, lane
            assert place not in earned
            assert (items.obs[lane, row] == stream.obs[place]).all()
            assert items.action[lane, row] == stream.action[place]
            earned[place] = float(items.return_[lane, row])
    return earned, state


def episodes(stream):
    """(rows, lane, cut off) of each that ended."""
    for lane in range(stream.lanes):
        start = 0
        for t in range(len(stream.reward)):
            if stream.terminated[t, lane] or stream.truncated[t, lane]:
                yield range(start, t + 1), lane, stream.truncated[t, lane]
                start = t + 2  # one step only resets


@pytest.mark.parametrize("baseline", [True, False])
def test_every_step_of_an_episode_counts_once_when_it_has_ended(stream, baseline):
    stream = stream(LENGTH * ROUNDS, 2)
    earned, state = learned_from(stream, longest=16, baseline=baseline, discount=0.9)
    critic = jax.tree.map(np.asarray, state.params["critic"])
    expected = {}
    lengths = []
    for rows, lane, cut_off in episodes(stream):
        total = 0.0
        if cut_off and baseline:  # its last observation has a future
            hidden = np.tanh(stream.obs[rows[-1] + 1, lane] @ critic[0]["w"] + critic[0]["b"])
            total = (hidden @ critic[1]["w"] + critic[1]["b"])[0]
        for t in reversed(rows):
            total = stream.reward[t, lane] + 0.9 * total
            expected[t, lane] = total
        lengths.append(len(rows))
    assert max(lengths) > LENGTH  # longer than a round: it was finished in a later one
    assert earned.keys() == expected.keys()
    for place, total in expected.items():
        assert earned[place] == pytest.approx(total, rel=1e-4, abs=1e-5)


def test_of_an_episode_that_is_too_long_the_last_steps_count(stream):
    stream = stream(LENGTH * ROUNDS, 2)
    for flags in (stream.terminated, stream.truncated):
        flags[:] = False
    stream.valid[:] = True
    stream.terminated[13] = True
    stream.valid[14] = False
    earned, _ = learned_from(stream, longest=6)
    # round 3 is rows 12 to 15, and 5 before them
    assert sorted({row for row, _ in earned}) == list(range(7, 14))


def linear(baseline, **fields):
    """A policy of biases alone, because all that it sees is 0."""
    algorithm, state = build(hidden=(), baseline=baseline, normalise_advantage=False, **fields)
    rows = pg.Rows(
        obs=jnp.zeros((4, 2)),
        action=jnp.array([0, 1, 1, 2]),
        return_=jnp.array([6.0, 3.0, 0.0, 99.0]),
        valid=jnp.array([True, True, True, False]),
    )
    (grads, _), weight, _, metrics = algorithm.gradient(state.params, rows, random.key(0))
    assert float(weight) == 3.0
    return grads, metrics


def test_the_gradient_by_hand_without_a_baseline():
    grads, metrics = linear(baseline=False)
    # log π = -log 3 each; d log π(a) / d bias = onehot(a) - 1/3; the mean of G times that, negated:
    # action 0: -(6 * 2/3 - 3/3 - 0) / 3 = -1; action 1: -(-6/3 + 3 * 2/3 + 0) / 3 = 0; action 2: 1
    np.testing.assert_allclose(grads["policy"][0]["b"], [-1.0, 0.0, 1.0], atol=1e-6)
    assert float(metrics["loss/policy"]) == pytest.approx(9 * np.log(3) / 3)
    assert all(not np.asarray(g).any() for g in jax.tree.leaves(grads["critic"]))
    assert "loss/value" not in metrics


def test_the_gradient_by_hand_with_a_baseline():
    algorithm, state = build(hidden=(), normalise_advantage=False, value_cost=0.5)
    state.params["critic"][0]["b"] = jnp.array([3.0])
    rows = pg.Rows(
        jnp.zeros((3, 2)), jnp.array([0, 1, 1]), jnp.array([6.0, 3.0, 0.0]), jnp.ones(3, bool)
    )
    grads, _ = algorithm.gradient(state.params, rows, random.key(0))[0]
    # G - 3 = 3, 0, -3.  action 0: -(3 * 2/3 + 3/3) / 3 = -1; action 1: -(-3/3 - 3 * 2/3) / 3 = 1;
    # action 2: -(-3/3 + 3/3) / 3 = 0. The value: 0.5 * mean of (3 - G) = 0.
    np.testing.assert_allclose(grads["policy"][0]["b"], [-1.0, 1.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(grads["critic"][0]["b"], [0.0], atol=1e-6)


def test_a_round_in_which_no_episode_ends_changes_nothing():
    algorithm, state = build(hidden=())
    rows = pg.Rows(jnp.ones((3, 2)), jnp.array([0, 1, 1]), jnp.ones(3), jnp.ones(3, bool))
    moved = algorithm.update(state, algorithm.gradient(state.params, rows, random.key(0))[0])
    assert not all(map(np.array_equal, *map(jax.tree.leaves, (state.params, moved.params))))
    none = rows._replace(valid=jnp.zeros(3, bool))
    again = algorithm.update(moved, algorithm.gradient(moved.params, none, random.key(0))[0])
    jax.tree.map(np.testing.assert_array_equal, again, moved)  # Adam would move on by itself


def test_the_entropy_bonus_is_that_of_an_even_policy():
    _, metrics = linear(baseline=False, entropy_cost=1.0)
    assert float(metrics["entropy"]) == pytest.approx(np.log(3))
