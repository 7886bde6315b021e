"""Returns: by hand, against rlax, and against a slow model over random timelines."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rondel.ops.returns import gae, n_step_returns, returns_to_go, vtrace

with warnings.catch_warnings():  # what rlax imports is older than jax
    warnings.simplefilter("ignore")
    import rlax

jitted = jax.jit(n_step_returns, static_argnums=5)


def column(*numbers):
    return jnp.asarray(numbers, jnp.float32)[:, None]


def flags(*numbers):
    return jnp.asarray(numbers, bool)[:, None]


def timeline(seed, rows, lanes, p_end=0.3):
    """Flags as environments give them: the row after an end only resets, with reward 0."""
    rng = np.random.default_rng(seed)
    terminated = rng.random((rows, lanes)) < p_end / 2
    truncated = (rng.random((rows, lanes)) < p_end / 2) & ~terminated
    valid = np.ones((rows, lanes), bool)
    for t in range(1, rows):
        resets = (terminated | truncated)[t - 1]
        valid[t] = ~resets
        terminated[t] &= valid[t]
        truncated[t] &= valid[t]
    reward = rng.normal(size=(rows, lanes)).astype(np.float32) * valid
    return reward, terminated, truncated, valid


def test_gae_by_hand():
    # discount 0.5, lambda 0.5: decay 0.25. Row 2 terminates, row 3 resets, row 4 goes on.
    reward, value = column(1, 2, 3, 0, 4), column(1, 2, 4, 100, 8, 16)
    terminated, never = flags(0, 0, 1, 0, 0), flags(0, 0, 0, 0, 0)
    valid = flags(1, 1, 1, 0, 1)
    # t=4: 4 + 0.5 * 16 - 8 = 4
    # t=3: 0, it only resets
    # t=2: 3 - 4 = -1; the value 100 of the terminal observation does not count
    # t=1: 2 + 0.5 * 4 - 2 = 2;  2 + 0.25 * -1 = 1.75
    # t=0: 1 + 0.5 * 2 - 1 = 1;  1 + 0.25 * 1.75 = 1.4375
    got = gae(reward, value, terminated, never, valid, 0.5, 0.5)
    np.testing.assert_allclose(got, column(1.4375, 1.75, -1, 0, 4))


def test_gae_bootstraps_from_a_truncation_but_goes_no_further():
    # t=0 truncated: 1 + 0.5 * 100 - 2 = 49; what comes after the reset (7 + 4 - 8 = 3) stays out
    reward, value = column(1, 0, 7), column(2, 100, 8, 8)
    got = gae(reward, value, flags(0, 0, 0), flags(1, 0, 0), flags(1, 0, 1), 0.5, 1.0)
    np.testing.assert_allclose(got, column(49, 0, 3))


def test_gae_is_rlax_within_an_episode():
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=(9, 3)), rng.normal(size=(10, 3))
    never, always = jnp.zeros((9, 3), bool), jnp.ones((9, 3), bool)
    end = never.at[-1].set(True)  # a termination in the last row needs no reset
    for terminated in (never, end):
        got = gae(jnp.float32(reward), jnp.float32(value), terminated, never, always, 0.97, 0.9)
        oracle = jax.vmap(rlax.truncated_generalized_advantage_estimation, (1, 1, None, 1), 1)(
            jnp.float32(reward), 0.97 * (1.0 - terminated), 0.9, jnp.float32(value)
        )
        np.testing.assert_allclose(got, oracle, rtol=2e-5, atol=1e-5)


def slow_gae(reward, value, terminated, truncated, valid, discount, gae_lambda):
    advantage = np.zeros(reward.shape)
    for lane in range(reward.shape[1]):
        for start in np.flatnonzero(valid[:, lane]):
            for t in range(start, len(reward)):  # the definition: a discounted sum of deltas
                assert valid[t, lane]
                bootstrap = 0.0 if terminated[t, lane] else discount * value[t + 1, lane]
                delta = reward[t, lane] + bootstrap - value[t, lane]
                advantage[start, lane] += (discount * gae_lambda) ** (t - start) * delta
                if terminated[t, lane] or truncated[t, lane]:
                    break
    return advantage


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.9, 1.0]), st.sampled_from([0.0, 0.95, 1.0]))
def test_gae_is_its_definition_over_random_timelines(seed, discount, gae_lambda):
    reward, terminated, truncated, valid = timeline(seed, rows=12, lanes=4)
    value = np.random.default_rng(seed + 1).normal(size=(13, 4)).astype(np.float32)
    arguments = reward, value, terminated, truncated, valid, discount, gae_lambda
    np.testing.assert_allclose(jax.jit(gae)(*arguments), slow_gae(*arguments), rtol=1e-4, atol=1e-4)


def test_n_step_by_hand():
    # n = 3, discount 0.5, 4 items from 6 rows. Row 2 terminates, row 3 resets.
    reward = column(1, 2, 4, 0, 8, 16)
    arguments = reward, flags(0, 0, 1, 0, 0, 0), flags(0, 0, 0, 0, 0, 0), flags(1, 1, 1, 0, 1, 1)
    return_, discount, offset, valid = n_step_returns(*arguments, 0.5, 3)
    # t=0: 1 + 0.5 * 2 + 0.25 * 4 = 3 over 3 rows, ended in a termination: discount 0
    # t=1: 2 + 0.5 * 4 = 4 over 2;   t=2: 4 over 1;   t=3 only resets
    np.testing.assert_allclose(return_[:3], column(3, 4, 4))
    np.testing.assert_allclose(discount[:3], column(0, 0, 0))
    np.testing.assert_array_equal(offset[:3], column(3, 2, 1))
    np.testing.assert_array_equal(valid, flags(1, 1, 1, 0))
    assert offset.dtype == jnp.int32

    return_, discount, offset, _ = n_step_returns(
        arguments[0], *arguments[2:0:-1], arguments[3], 0.5, 3
    )
    # the same, truncated: bootstraps with 0.5**offset
    np.testing.assert_allclose(return_[:3], column(3, 4, 4))
    np.testing.assert_allclose(discount[:3], column(0.125, 0.25, 0.5))
    np.testing.assert_array_equal(offset[:3], column(3, 2, 1))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_n_step_is_rlax_within_an_episode(n):
    rng = np.random.default_rng(n)
    reward = jnp.float32(rng.normal(size=(8 + n - 1, 1)))
    value = jnp.float32(rng.normal(size=8 + n))
    never = jnp.zeros(reward.shape, bool)
    return_, discount, offset, _ = n_step_returns(reward, never, never, ~never, 0.9, n)
    ours = return_[:, 0] + discount[:, 0] * value[jnp.arange(8) + offset[:, 0]]
    rows = reward.shape[0]
    oracle = rlax.n_step_bootstrapped_returns(reward[:, 0], jnp.full(rows, 0.9), value[1:], n)
    np.testing.assert_allclose(ours, oracle[:8], rtol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 5))
def test_n_step_is_its_definition_over_random_timelines(seed, n):
    reward, terminated, truncated, valid = timeline(seed, rows=7 + n - 1, lanes=3)
    got = jitted(reward, terminated, truncated, valid, 0.9, n)
    assert all(x.shape == (7, 3) for x in got)
    return_, discount, offset, kept = map(np.asarray, got)
    np.testing.assert_array_equal(kept, valid[:7])
    for t, lane in np.argwhere(kept):
        total, steps, ended = 0.0, 0, False
        while steps < n and not ended:
            assert valid[t + steps, lane]
            total += 0.9**steps * reward[t + steps, lane]
            ended = terminated[t + steps, lane] or truncated[t + steps, lane]
            steps += 1
        final = 0.0 if terminated[t + steps - 1, lane] else 0.9**steps
        np.testing.assert_allclose(return_[t, lane], total, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(discount[t, lane], final, rtol=1e-5)
        assert offset[t, lane] == steps
    assert ((offset >= 1) & (offset <= n)).all()


def test_vtrace_by_hand():
    # discount 0.5; the raw deltas r + 0.5 v' - v are 1 + 1 - 1 = 1, 2 + 2 - 2 = 2, 3 + 4 - 4 = 3
    reward, value, ratio = column(1, 2, 3), column(1, 2, 4, 8), column(2, 0.5, 4)
    never, always = flags(0, 0, 0), flags(1, 1, 1)
    target, advantage = vtrace(ratio, reward, value, never, never, always, 0.5)
    # rho = c = 1, 0.5, 1: deltas 1, 1, 3
    # more: 3;  1 + 0.5 * 0.5 * 3 = 1.75;  1 + 0.5 * 1 * 1.75 = 1.875
    np.testing.assert_allclose(target, column(1 + 1.875, 2 + 1.75, 4 + 3))
    # 1 * (1 + 0.5 * 3.75 - 1);  0.5 * (2 + 0.5 * 7 - 2);  1 * (3 + 0.5 * 8 - 4)
    np.testing.assert_allclose(advantage, column(1.875, 1.75, 3))

    target, advantage = vtrace(ratio, reward, value, never, never, always, 0.5, clip_rho=2.0)
    # rho = 2, 0.5, 2 and c as before: deltas 2, 1, 6
    # more: 6;  1 + 0.25 * 6 = 2.5;  2 + 0.5 * 2.5 = 3.25
    np.testing.assert_allclose(target, column(1 + 3.25, 2 + 2.5, 4 + 6))
    # 2 * (1 + 0.5 * 4.5 - 1);  0.5 * (2 + 0.5 * 10 - 2);  2 * 3
    np.testing.assert_allclose(advantage, column(4.5, 2.5, 6))


@pytest.mark.parametrize("trace_lambda", [1.0, 0.9])
@pytest.mark.parametrize("clip_rho", [1.0, 3.0])
def test_vtrace_is_rlax_within_an_episode(trace_lambda, clip_rho):
    rng = np.random.default_rng(2)
    reward, value = jnp.float32(rng.normal(size=(9, 1))), jnp.float32(rng.normal(size=(10, 1)))
    ratio = jnp.float32(np.exp(rng.normal(size=(9, 1))))
    never, always = jnp.zeros((9, 1), bool), jnp.ones((9, 1), bool)
    for terminated in (never, never.at[-1].set(True)):
        target, advantage = vtrace(
            ratio, reward, value, terminated, never, always, 0.97, trace_lambda, clip_rho
        )
        oracle = rlax.vtrace_td_error_and_advantage(
            value[:-1, 0],
            value[1:, 0],
            reward[:, 0],
            0.97 * (1.0 - terminated[:, 0]),
            ratio[:, 0],
            trace_lambda,
            clip_rho_threshold=clip_rho,
            clip_pg_rho_threshold=clip_rho,
        )
        np.testing.assert_allclose((target - value[:-1])[:, 0], oracle.errors, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(advantage[:, 0], oracle.pg_advantage, rtol=1e-4, atol=1e-5)


def slow_vtrace(ratio, reward, value, terminated, truncated, valid, discount, clip_rho, clip_c):
    """Equation 1: a sum of deltas, each times the product of all c before it."""
    target = value[:-1].astype(np.float64)
    for start, lane in np.argwhere(valid):
        product = 1.0
        for t in range(start, len(reward)):
            after = 0.0 if terminated[t, lane] else value[t + 1, lane]
            delta = reward[t, lane] + discount * after - value[t, lane]
            rho = min(clip_rho, ratio[t, lane])
            target[start, lane] += discount ** (t - start) * product * rho * delta
            product *= min(clip_c, ratio[t, lane])
            if terminated[t, lane] or truncated[t, lane]:
                break
    return target


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([(1.0, 1.0), (2.0, 1.0), (1.5, 0.5)]))
def test_vtrace_is_its_definition_over_random_timelines(seed, clips):
    reward, terminated, truncated, valid = timeline(seed, rows=12, lanes=4)
    rng = np.random.default_rng(seed + 1)
    value = rng.normal(size=(13, 4)).astype(np.float32)
    ratio = np.exp(rng.normal(size=(12, 4))).astype(np.float32)
    rows = ratio, reward, value, terminated, truncated, valid, 0.9
    target, advantage = traced(*rows, 1.0, *clips)
    expected = slow_vtrace(*rows, *clips)
    np.testing.assert_allclose(target, expected, rtol=1e-4, atol=1e-4)
    # what the row earns if the next state is worth its own target; a reset's target is its value
    ahead = np.concatenate([expected[1:], value[-1:]])
    better = reward + 0.9 * np.where(terminated, 0.0, ahead) - value[:-1]
    weighed = np.where(valid, np.minimum(clips[0], ratio) * better, 0.0)
    np.testing.assert_allclose(advantage, weighed, rtol=1e-4, atol=1e-4)


traced = jax.jit(vtrace)


def test_vtrace_of_the_policy_that_acted_is_gae():
    reward, terminated, truncated, valid = timeline(7, rows=20, lanes=4)
    value = np.random.default_rng(8).normal(size=(21, 4)).astype(np.float32)
    rows = reward, value, terminated, truncated, valid, 0.97
    expected = gae(*rows, 0.9)
    target, advantage = vtrace(np.ones_like(reward), *rows, 0.9)
    np.testing.assert_allclose(advantage, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(target, expected + value[:-1], rtol=1e-5, atol=1e-5)


def test_returns_to_the_end_by_hand():
    # Row 1 terminates, row 2 resets, row 4 is cut off, row 5 resets, row 6 goes on.
    reward, value = column(1, 2, 0, 3, 4, 0, 9), column(0, 0, 100, 0, 0, 16, 0, 0)
    rows = flags(0, 1, 0, 0, 0, 0, 0), flags(0, 0, 0, 0, 1, 0, 0), flags(1, 1, 0, 1, 1, 0, 1)
    known = [0, 1, 3, 4]
    # discount 0.5: 1 + 0.5 * 2;  2, whatever its last observation is worth
    # cut off: 4 + 0.5 * 16 = 12, and 3 + 0.5 * 12 = 9; without values 4, and 3 + 0.5 * 4 = 5
    return_, end = returns_to_go(reward, value, *rows, 0.5)
    np.testing.assert_allclose(return_[known, 0], [2, 2, 9, 12])
    assert end[jnp.array([*known, 6]), 0].tolist() == [1, 1, 4, 4, 7]
    return_, again = returns_to_go(reward, None, *rows, 0.5)
    np.testing.assert_allclose(return_[known, 0], [2, 2, 5, 4])
    np.testing.assert_array_equal(again, end)
