"""Running moments and the scale of returns, against NumPy on all samples at once."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rondel.ops import statistics

summarise = jax.jit(statistics.return_summary)
absorb = jax.jit(statistics.absorb_returns)


def rounds_of(seed, count=4, rows=16, lanes=6):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield (
            {
                "pose": rng.normal(3.0, 2.0, (rows, lanes, 5)).astype(np.float32),
                "speed": rng.normal(-100.0, 0.1, (rows, lanes)).astype(np.float32),
                "image": rng.integers(0, 255, (rows, lanes, 2, 2), np.uint8),
            },
            rng.random((rows, lanes)) < 0.8,
        )


def like(observations):
    return jax.tree.map(lambda x: x[0, 0], observations)


def test_moments_by_hand():
    # lane 0 sees 1, 2, 6: mean 3, squares 4 + 1 + 9 = 14. Lane 1 sees 5 alone: mean 5, squares 0.
    x = jnp.float32([[1, 5], [2, 77], [6, 77]])
    lanes = statistics.moments_of(x, jnp.asarray([[True, True], [True, False], [True, False]]))
    np.testing.assert_allclose(lanes.count, [3, 1])
    np.testing.assert_allclose(lanes.mean, [3, 5])
    np.testing.assert_allclose(lanes.m2, [14, 0])
    # all four: mean 3.5; squares 6.25 + 2.25 + 6.25 + 2.25 = 17
    both = statistics.merge(statistics.no_moments(jnp.zeros(())), lanes)
    np.testing.assert_allclose((both.count, both.mean, both.m2), (4, 3.5, 17))
    # deviation sqrt(17 / 4) = 2.0616
    np.testing.assert_allclose(
        statistics.normalise(both, jnp.float32([3.5, 5.5616, 100.0]), 2.0), [0, 1, 2], atol=1e-4
    )


def test_moments_are_those_of_all_valid_samples():
    moments, pose, speed = None, [], []
    for x, valid in rounds_of(0):
        moments = statistics.no_moments(like(x)) if moments is None else moments
        moments = statistics.merge(moments, statistics.moments_of(x, valid))
        pose.append(x["pose"][valid])
        speed.append(x["speed"][valid])
    assert moments.mean["image"] is None
    for name, samples in (("pose", np.concatenate(pose)), ("speed", np.concatenate(speed))):
        count = float(moments.count)
        assert count == len(samples)
        np.testing.assert_allclose(moments.mean[name], samples.mean(0, np.float64), rtol=1e-5)
        variance = samples.var(0, dtype=np.float64)
        np.testing.assert_allclose(moments.m2[name] / count, variance, rtol=1e-4)


def test_moments_do_not_depend_on_who_acted_which_lanes():
    ((x, valid),) = rounds_of(1, count=1)
    whole = statistics.moments_of(x, valid)
    for width in (1, 2, 3):
        lanes = [slice(i, i + width) for i in range(0, 6, width)]
        parts = [
            statistics.moments_of(jax.tree.map(lambda leaf, s=s: leaf[:, s], x), valid[:, s])
            for s in lanes
        ]
        joined = jax.tree.map(lambda *p: jnp.concatenate(p), *parts)
        jax.tree.map(np.testing.assert_array_equal, joined, whole)


def test_a_lane_without_valid_rows_changes_nothing():
    lanes = statistics.moments_of(jnp.full((3, 2), jnp.nan), jnp.zeros((3, 2), bool))
    before = statistics.Moments(jnp.float32(2), jnp.float32(5), jnp.float32(8))
    jax.tree.map(np.testing.assert_array_equal, statistics.merge(before, lanes), before)


def test_normalise_keeps_other_leaves_and_does_nothing_before_the_first_sample():
    ((x, _),) = rounds_of(2, count=1)
    got = statistics.normalise(statistics.no_moments(like(x)), x, 10.0)
    assert got["image"].dtype == jnp.uint8
    np.testing.assert_array_equal(got["image"], x["image"])
    np.testing.assert_allclose(got["pose"], x["pose"], rtol=1e-6)
    np.testing.assert_allclose(got["speed"], -10.0)


def test_moments_still_move_after_a_thousand_million_samples():
    moments = statistics.Moments(*(jnp.float32(x) for x in (0, 0, 0)))
    million = statistics.Moments(*(jnp.full(1, x, jnp.float32) for x in (1e6, 1.0, 4e6)))
    merge = jax.jit(statistics.merge)
    for _ in range(1000):
        moments = merge(moments, million)
    assert float(moments.count) == statistics.MAX_COUNT
    np.testing.assert_allclose(moments.mean, 1.0, rtol=1e-3)
    np.testing.assert_allclose(moments.m2 / moments.count, 4.0, rtol=1e-3)
    # one more sample still counts, as one of MAX_COUNT
    one = statistics.Moments(*(jnp.full(1, x, jnp.float32) for x in (1, 1e4, 0)))
    moved = float(merge(moments, one).mean - moments.mean)
    np.testing.assert_allclose(moved, (1e4 - 1) / statistics.MAX_COUNT, rtol=1e-2)


def test_return_summary_by_hand():
    # discount 0.5, rewards 1, 2, end, (reset), 4. Into the round comes G_0 = 8.
    # G = 0.5 * 8 + 1 = 5;  0.5 * 5 + 2 = 4.5, end;  4. Mean 4.5, squares 0.25 + 0 + 0.25.
    summary = statistics.return_summary(
        *(jnp.asarray(x)[:, None] for x in ([1.0, 2.0, 0.0, 4.0], [False, True, False, False])),
        jnp.zeros((4, 1), bool),
        jnp.asarray([True, True, False, True])[:, None],
        0.5,
    )
    before = statistics.no_returns(1)._replace(running=jnp.float32([8.0]))
    after = statistics.absorb_returns(before, summary)
    np.testing.assert_allclose(after.running, [4.0])
    np.testing.assert_allclose(after.moments, (3, 4.5, 0.5), rtol=1e-6)
    np.testing.assert_allclose(statistics.scale(after), np.sqrt(0.5 / 3), rtol=1e-5)
    assert float(statistics.scale(before)) == 1.0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.3]), st.sampled_from([0.0, 0.9, 0.999]))
def test_returns_over_rounds_are_those_of_one_long_loop(seed, p_end, discount):
    rng = np.random.default_rng(seed)
    rows, lanes = 11, 3
    scaler = statistics.no_returns(lanes)
    running, ended, seen = np.zeros(lanes), np.zeros(lanes, bool), []
    for _ in range(4):
        reward = rng.normal(1.0, 1.0, (rows, lanes)).astype(np.float32)
        terminated = rng.random((rows, lanes)) < p_end / 2
        truncated = rng.random((rows, lanes)) < p_end / 2
        valid = np.ones((rows, lanes), bool)
        for t in range(rows):
            valid[t] = ~ended
            terminated[t] &= valid[t]
            truncated[t] &= valid[t]
            reward[t] *= valid[t]
            running = np.where(valid[t], discount * running + reward[t], running)
            seen.extend(running[valid[t]])
            ended = terminated[t] | truncated[t]
            running = np.where(ended, 0.0, running)
        summary = summarise(reward, terminated, truncated, valid, discount)
        scaler = absorb(scaler, summary)
    np.testing.assert_allclose(scaler.running, running, rtol=1e-4, atol=1e-4)
    assert float(scaler.moments.count) == len(seen)
    np.testing.assert_allclose(scaler.moments.mean, np.mean(seen), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(statistics.scale(scaler), np.std(seen), rtol=1e-3)
