"""Normalised observations and scaled rewards against sequential models in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control import a_batch

from rondel.algorithms import dqn, ppo
from rondel.algorithms.wrappers import with_observation_normalisation, with_reward_scaling
from rondel.ops import random
from rondel.ops.statistics import Moments
from rondel.spaces import Box, Discrete
from rondel.types import EnvSpec

TWO = Box(np.full(2, -1.0, np.float32), np.ones(2, np.float32))
SPEC = EnvSpec("test:discrete", TWO, Discrete(3), lanes=3)
LENGTH, ROUNDS, LANES = 5, 4, 3


def a_dqn(n=1):
    config = dqn.Config(rollout=LENGTH, hidden=(4,), n_step=n, prioritised=True, discount=0.9)
    return dqn.make(config, SPEC)


def a_ppo():
    return ppo.make(ppo.Config(rollout=LENGTH, hidden=(4,)), SPEC)


def experienced(stream):
    """Far from standardised, each feature in its own way."""
    experience = stream(LENGTH * ROUNDS, LANES, seed=4)
    experience.obs = experience.obs * np.array([20.0, 0.1], np.float32) + np.float32(3.0)
    return experience


def rounds(algorithm, experience, state):
    """Act (as made up), prepare, absorb: (weights, trajectory, items, state after) per round."""
    prepare, absorb = jax.jit(algorithm.prepare), jax.jit(algorithm.absorb)
    for r in range(ROUNDS):
        tr = experience.round(r, LENGTH, algorithm.overlap)
        if algorithm.overlap == 0:
            tr = tr._replace(extras=experience.log_prob[r * LENGTH : (r + 1) * LENGTH])
        weights = algorithm.acting(state)
        items, summary = prepare(weights, tr)
        state = absorb(state, summary)
        yield weights, tr, items, state


def seen_until(experience, row):
    """All observations that were acted upon before a row [k, features], in float64."""
    return experience.obs[:row][experience.valid[:row]].astype(np.float64)


def normalised(obs, seen):
    if not len(seen):
        return np.clip(obs, -10, 10)
    return np.clip((obs - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-8), -10, 10)


@pytest.mark.parametrize("make", [a_ppo, a_dqn, lambda: a_dqn(3)], ids=["ppo", "dqn", "n-step"])
def test_statistics_are_those_of_all_valid_observations_so_far(stream, make):
    algorithm = with_observation_normalisation(make(), SPEC)
    experience = experienced(stream)
    state = jax.jit(algorithm.init)(random.key(0))
    for r, (_, _, _, after) in enumerate(rounds(algorithm, experience, state)):
        seen = seen_until(experience, (r + 1) * LENGTH)
        assert float(after.moments.count) == len(seen)
        np.testing.assert_allclose(after.moments.mean, seen.mean(0), rtol=1e-4)
        np.testing.assert_allclose(after.moments.m2 / len(seen), seen.var(0), rtol=1e-4)


def test_acting_preparing_and_learning_see_the_same_numbers_and_memory_the_raw_ones(stream):
    plain = a_ppo()
    algorithm = with_observation_normalisation(plain, SPEC)
    experience = experienced(stream)
    state = jax.jit(algorithm.init)(random.key(0))
    act = jax.jit(algorithm.act, static_argnums=4)
    plain_act = jax.jit(plain.act, static_argnums=4)
    prepare, gradient = jax.jit(plain.prepare), jax.jit(plain.gradient)
    wrapped = jax.jit(algorithm.gradient)
    keys = jax.jit(lambda: random.fold(random.key(0)[None], jnp.arange(LANES)))()
    for r, (weights, tr, items, after) in enumerate(rounds(algorithm, experience, state)):
        seen = normalised(tr.obs, seen_until(experience, r * LENGTH)).astype(np.float32)
        assert (np.asarray(items.obs) == tr.obs[:-1].swapaxes(0, 1)).all()
        got = act(weights, (), tr.obs[0], keys, True)
        expected = plain_act(weights[0], (), seen[0], keys, True)
        np.testing.assert_allclose(got[2], expected[2], rtol=1e-4)
        raw, _ = prepare(weights[0], tr._replace(obs=seen))
        np.testing.assert_allclose(items.value, raw.value, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(items.advantage, raw.advantage, rtol=1e-3, atol=1e-3)
        rows, raw = (jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), t) for t in (items, raw))
        # after absorbing, acting has newer statistics already, learning has not
        got = wrapped(algorithm.learning(after), rows, keys[0])
        expected = gradient(weights[0], raw, keys[0])
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


def test_learning_sees_what_data_that_are_behind_were_acted_with(stream):
    """A lag of 2: round r is acted with the statistics before round r - 2 was absorbed."""
    algorithm = with_observation_normalisation(a_ppo(), SPEC)
    experience, versions = experienced(stream), []
    state = jax.jit(algorithm.init)(random.key(0))
    prepare, absorb = jax.jit(algorithm.prepare), jax.jit(algorithm.absorb)
    for r in range(ROUNDS):
        versions.append(algorithm.acting(state))
        weights = versions[max(0, r - 2)]
        tr = experience.round(r, LENGTH, 0)
        tr = tr._replace(extras=experience.log_prob[r * LENGTH : (r + 1) * LENGTH])
        state = absorb(state, prepare(weights, tr)[1])
        learned = algorithm.learning(state)[1]
        jax.tree.map(np.testing.assert_array_equal, learned, weights[1])
    assert float(state.acted.count) < float(state.moments.count) / 2


def test_successors_are_normalised_too(stream):
    plain = a_dqn()
    algorithm = with_observation_normalisation(plain, SPEC)
    experience = experienced(stream)
    state = jax.jit(algorithm.init)(random.key(0))
    *_, (_, _, items, state) = rounds(algorithm, experience, state)

    @jax.jit
    def stored_and_drawn(items):
        memory = algorithm.memory.init(items, 1)
        memory = algorithm.memory.add(memory, items, random.key(0))
        return algorithm.memory.draw(memory, random.key(0), 0)[0]

    batch = stored_and_drawn(items)
    seen = seen_until(experience, (ROUNDS - 1) * LENGTH)
    by_hand = batch._replace(
        obs=normalised(np.asarray(batch.obs), seen).astype(np.float32),
        next_obs=normalised(np.asarray(batch.next_obs), seen).astype(np.float32),
    )
    variables = algorithm.learning(state)
    got = jax.jit(algorithm.gradient)(variables, batch, random.key(0))
    expected = jax.jit(plain.gradient)(variables[0], by_hand, random.key(0))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


def test_labels_see_normalised_observations_and_pass_raw_ones_on():
    def label(variables, batch, keys):
        del variables, keys
        return batch._replace(reward=batch.next_obs.sum(-1))

    algorithm = with_observation_normalisation(a_dqn()._replace(label=label), SPEC)
    moments = Moments(jnp.float32(4.0), jnp.array([3.0, 0.0]), jnp.array([16.0, 4.0]))
    batch = a_batch()
    made = algorithm.label(((), moments), batch, None)
    # means 3 and 0, variances 16 / 4 and 4 / 4
    expected = (batch.next_obs[:, 0] - 3.0) / 2.0 + batch.next_obs[:, 1]
    np.testing.assert_allclose(made.reward, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(made.next_obs, batch.next_obs)
    assert with_observation_normalisation(a_dqn(), SPEC).label is None


def model_of_scaling(experience, discount, rounds):
    """VecNormalize, with the deviation as it was at the round's start: one per round."""
    returns, running, scales = [], np.zeros(LANES), []
    for r in range(rounds):
        scales.append(np.sqrt(np.var(returns) + 1e-8) if returns else np.sqrt(1 + 1e-8))
        for t in range(r * LENGTH, (r + 1) * LENGTH):
            for b in range(LANES):
                if experience.valid[t, b]:
                    running[b] = running[b] * discount + experience.reward[t, b]
                    returns.append(running[b])
                if experience.terminated[t, b] or experience.truncated[t, b]:
                    running[b] = 0.0
    return scales, running


@pytest.mark.parametrize("n", [1, 3])
def test_rewards_are_divided_by_the_deviation_of_returns(stream, n):
    inner = a_dqn(n)
    algorithm = with_reward_scaling(inner, LANES, 0.9, clip=1.0)
    experience = stream(LENGTH * ROUNDS, LANES, seed=4)
    experience.reward = experience.reward * np.float32(5.0) + np.float32(2.0) * experience.valid
    first = jax.jit(algorithm.init)(random.key(0))
    scales, running = model_of_scaling(experience, 0.9, ROUNDS)
    inner_prepare, cut = jax.jit(inner.prepare), 0
    made = list(rounds(algorithm, experience, first))
    for r, (weights, tr, items, _) in enumerate(made):
        assert float(weights[1]) == pytest.approx(scales[r], rel=1e-4)
        scaled = np.clip(tr.reward / scales[r], -1.0, 1.0).astype(np.float32)
        cut += (np.abs(scaled) == 1.0).sum()
        expected, _ = inner_prepare(weights[0], tr._replace(reward=scaled))
        np.testing.assert_allclose(items.reward, expected.reward, rtol=1e-4, atol=1e-5)
        if n == 1:
            np.testing.assert_allclose(items.reward, scaled.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(made[-1][3].returns.running, running, rtol=1e-4, atol=1e-5)
    assert 0 < cut < experience.reward.size


def test_both_together_leave_what_the_algorithm_gives_alone(stream):
    """Scaled inside, normalised outside, as a run does it; acting ignores the reward's scale."""
    scaled = with_reward_scaling(a_dqn(), LANES, 0.9)
    algorithm = with_observation_normalisation(scaled, SPEC)
    experience = experienced(stream)
    first = jax.jit(algorithm.init)(random.key(0))
    scales, _ = model_of_scaling(experience, 0.9, ROUNDS)
    made = list(rounds(algorithm, experience, first))
    for r, (_, tr, items, _) in enumerate(made):
        expected = np.clip(tr.reward / scales[r], -10, 10)
        np.testing.assert_allclose(items.reward, expected.T, rtol=1e-4, atol=1e-5)
    state = made[-1][3]
    grads = jax.tree.map(np.ones_like, state.inner.inner.params)
    updated = jax.jit(algorithm.update)(state, grads)
    assert updated.inner.inner.updates == 1
    kept = [(s.moments, s.acted, s.inner.returns) for s in (updated, state)]
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, kept), strict=True))
