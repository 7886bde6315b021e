"""Action distributions against numbers by hand, scipy, and their own frequencies."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rondel.errors import RondelError
from rondel.ops import distributions, random
from rondel.ops.distributions import categorical, gaussian, masked, multi_categorical, squashed
from rondel.spaces import Box, Discrete, MultiBinary, MultiDiscrete


@functools.partial(jax.jit, static_argnums=0)
def keys(n):
    return random.fold(random.key(0)[None], jnp.arange(n))


def log(*probabilities):
    return jnp.log(jnp.array(probabilities))


def test_categorical_by_hand():
    d = categorical(3)
    params = jnp.stack([log(0.5, 0.25, 0.25) + 7.0, jnp.zeros(3)])  # logits have no zero point
    # log 1/4 = -1.3862944, log 1/3 = -1.0986123
    np.testing.assert_allclose(
        d.log_prob(params, jnp.array([1, 2])), [-1.3862944, -1.0986123], rtol=1e-6
    )
    # 1/2 log 2 + 2 (1/4 log 4) = 1.0397208; log 3 = 1.0986123
    np.testing.assert_allclose(d.entropy(params), [1.0397208, 1.0986123], rtol=1e-6)
    assert d.mode(params[:1]).tolist() == [0]
    assert d.mode(params).dtype == jnp.int32
    assert d.size == 3


def test_multi_categorical_by_hand():
    d = multi_categorical((2, 3))
    params = jnp.concatenate([log(0.25, 0.75), log(0.5, 0.25, 0.25)])[None]
    # the choices are independent: log(3/4 * 1/4) = log 3/16 = -1.6739764
    np.testing.assert_allclose(d.log_prob(params, jnp.array([[1, 2]])), [-1.6739764], rtol=1e-6)
    # entropies add: (1/4 log 4 + 3/4 log 4/3 = 0.5623351) + 1.0397208
    np.testing.assert_allclose(d.entropy(params), [1.6020559], rtol=1e-6)
    assert d.mode(params).tolist() == [[1, 0]]
    assert d.size == 5


def test_gaussian_by_hand():
    d = gaussian(2)
    params = jnp.array([[1.0, -2.0, 0.0, float(np.log(2.0))]])
    # z = (1 - 1) / 1 = 0 and (0 + 2) / 2 = 1:
    # (0 - 0 - 0.9189385) + (-1/2 - log 2 - 0.9189385) = -3.0310242
    np.testing.assert_allclose(d.log_prob(params, jnp.array([[1.0, 0.0]])), [-3.0310242], rtol=1e-6)
    # 1.4189385 each, and log 2 for the second: 3.5310242
    np.testing.assert_allclose(d.entropy(params), [3.5310242], rtol=1e-6)
    assert d.mode(params).tolist() == [[1.0, -2.0]]
    assert d.size == 4


def test_gaussian_against_scipy():
    rng = np.random.default_rng(0)
    mean, log_std, x = rng.normal(size=(3, 4, 5, 3))
    params = jnp.concatenate([mean, log_std], -1).astype(jnp.float32)
    d = gaussian(3)
    expected = stats.norm(mean, np.exp(log_std))
    got = d.log_prob(params, jnp.asarray(x, jnp.float32))
    np.testing.assert_allclose(got, expected.logpdf(x).sum(-1), rtol=1e-4)
    np.testing.assert_allclose(d.entropy(params), expected.entropy().sum(-1), rtol=1e-5)


def test_categorical_against_scipy():
    logits = np.random.default_rng(1).normal(size=(4, 5, 6)) * 3
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    d = categorical(6)
    params = jnp.asarray(logits, jnp.float32)
    np.testing.assert_allclose(d.entropy(params), stats.entropy(p, axis=-1), rtol=1e-4)
    action = np.random.default_rng(2).integers(0, 6, (4, 5))
    chosen = np.take_along_axis(p, action[..., None], -1)[..., 0]
    np.testing.assert_allclose(d.log_prob(params, action), np.log(chosen), rtol=1e-4, atol=1e-6)


def chi_square(actions, p):
    """How likely these frequencies are if the probabilities are p."""
    return stats.chisquare(np.bincount(actions, minlength=len(p)), p * len(actions)).pvalue


def test_categorical_samples_as_often_as_it_says():
    n, p = 50_000, np.array([0.1, 0.6, 0.05, 0.25])
    params = jnp.broadcast_to(log(*p), (n, 4))
    actions = jax.jit(categorical(4).sample)(params, keys(n))
    assert actions.dtype == jnp.int32
    assert chi_square(np.asarray(actions), p) > 0.01


def test_multi_categorical_samples_independent_choices_as_often_as_it_says():
    n, p, q = 50_000, np.array([0.3, 0.7]), np.array([0.2, 0.5, 0.3])
    params = jnp.broadcast_to(log(*p, *q), (n, 5))
    actions = np.asarray(jax.jit(multi_categorical((2, 3)).sample)(params, keys(n)))
    assert actions.shape == (n, 2)
    # all six pairs: had both choices the same random number, some would never come up
    assert chi_square(actions[:, 0] * 3 + actions[:, 1], np.outer(p, q).reshape(-1)) > 0.01


def test_gaussian_samples_have_mean_and_deviation():
    n = 50_000
    params = jnp.broadcast_to(jnp.array([1.0, -3.0, -1.0, 0.5]), (n, 4))
    x = np.asarray(jax.jit(gaussian(2).sample)(params, keys(n)))
    for i, (mean, log_std) in enumerate([(1.0, -1.0), (-3.0, 0.5)]):
        assert stats.kstest(x[:, i], stats.norm(mean, np.exp(log_std)).cdf).pvalue > 0.01
    assert abs(np.corrcoef(x.T)[0, 1]) < 0.02


def test_a_lane_samples_by_its_own_key_only():
    params = jnp.asarray(np.random.default_rng(0).normal(size=(6, 4)), jnp.float32)
    for d in (multi_categorical((2, 2)), gaussian(2)):
        sample = jax.jit(d.sample)
        together = sample(params, keys(6))
        others = sample(params.at[3:].set(0.0), keys(6)[jnp.array([5, 4, 2, 0, 0, 1])])
        assert (np.asarray(together[2]) == np.asarray(others[2])).all()
        assert (np.asarray(together) != np.asarray(others)).any()


def test_a_mask_makes_choices_impossible():
    logits = jnp.array([[5.0, 1.0, 1.0, 9.0]])
    mask = jnp.array([[0, 1, 1, 0]], jnp.int8)
    d, params = categorical(4), masked(logits, mask)
    assert d.mode(params).tolist() == [1]
    # two choices left, equally likely: log 1/2 and entropy log 2
    np.testing.assert_allclose(d.log_prob(params, jnp.array([2])), [np.log(0.5)], rtol=1e-6)
    np.testing.assert_allclose(d.entropy(params), [np.log(2.0)], rtol=1e-6)
    assert float(d.log_prob(params, jnp.array([3]))[0]) < -1e6
    assert masked(logits, None) is logits
    sampled = jax.jit(d.sample)(jnp.broadcast_to(params, (2_000, 4)), keys(2_000))
    assert set(np.asarray(sampled).tolist()) == {1, 2}


def test_gradients_with_a_mask_are_finite_and_zero_where_forbidden():
    mask = jnp.array([[1, 0, 1]])
    d = categorical(3)

    def f(logits):
        params = masked(logits, mask)
        return (d.entropy(params) + d.log_prob(params, jnp.array([2]))).sum()

    grads = np.asarray(jax.jit(jax.grad(f))(jnp.array([[0.3, 2.0, -1.0]])))
    assert np.isfinite(grads).all()
    assert grads[0, 1] == 0.0
    assert (grads[0, [0, 2]] != 0.0).all()


@pytest.mark.parametrize(
    "n",
    [
        2,
        3,
        64,
        300,
    ],
)
def test_a_forbidden_choice_is_never_sampled_whatever_rounding_does(monkeypatch, n):
    """At the points where one choice ends and the next begins, a last bit decides."""
    rng = np.random.default_rng(n)
    rows = 10_000
    mask = rng.random((rows, n)) < 0.5
    mask[: rows // 2, -1] = False
    mask[:, 0] |= ~mask.any(-1)
    params = masked(rng.normal(size=(rows, n)).astype(np.float32), mask)
    ends = np.asarray(jnp.cumsum(jax.nn.softmax(params), -1))
    step = 2.0**-23  # uniform numbers are multiples of it
    near = np.round(ends[np.arange(rows), rng.integers(0, n, rows)] / ends[:, -1] / step) * step
    for point in (np.zeros(rows), np.full(rows, 1 - step), near - step, near, near + step):
        u = np.clip(point, 0.0, 1 - step).astype(np.float32)
        monkeypatch.setattr(distributions.random, "uniform", lambda keys, count, u=u: u[:, None])
        action = np.asarray(categorical(n).sample(params, keys(rows)))
        assert (action >= 0).all()
        assert (action < n).all()
        allowed = mask[np.arange(rows), action]
        assert allowed.all(), f"{(~allowed).sum()} of {rows} rows sampled a forbidden choice"


def test_a_mask_of_several_choices_holds_for_each():
    d = multi_categorical((2, 3))
    mask = jnp.broadcast_to(jnp.array([1, 0, 0, 1, 1]), (500, 5))
    actions = np.asarray(jax.jit(d.sample)(masked(jnp.zeros((500, 5)), mask), keys(500)))
    assert (actions[:, 0] == 0).all()
    assert set(actions[:, 1].tolist()) == {1, 2}


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize(
    ("space", "size"),
    [(Discrete(4), 4), (MultiDiscrete((2, 3)), 5), (Box(-np.ones(3), np.ones(3)), 6)],
)
def test_every_space_has_its_distribution_for_any_batch(space, size, batch):
    d = distributions.for_space(space)
    assert d.size == size
    params = jax.ShapeDtypeStruct((*batch, size), jnp.float32)
    action = jax.eval_shape(d.mode, params)
    assert action.shape == (*batch, *space.shape)
    assert action.dtype == space.dtype
    assert jax.eval_shape(d.log_prob, params, action).shape == batch
    assert jax.eval_shape(d.entropy, params).shape == batch


@pytest.mark.parametrize(
    "space", [MultiBinary((3,)), Box(np.zeros((2, 2)), np.ones((2, 2))), (Discrete(2), Discrete(2))]
)
def test_a_space_without_a_distribution_is_refused_with_what_works(space):
    with pytest.raises(RondelError, match="must be Discrete, MultiDiscrete or a Box of one axis"):
        distributions.for_space(space)


def test_a_squashed_normal_by_hand():
    # u = 0.5 + 2 * 0.25 = 1, tanh 1 = 0.7615942; density of 0.25: -0.03125 - log 2 - 0.9189385;
    # the slope of tanh there: log(1 - 0.7615942^2) = log 0.4199743 = -0.8675617
    mean, log_std, normal = (jnp.array([[x]]) for x in (0.5, np.log(2.0), 0.25))
    action, log_prob = squashed(mean, log_std, normal)
    np.testing.assert_allclose(action, [[0.7615942]], rtol=1e-6)
    np.testing.assert_allclose(log_prob, [-0.03125 - 0.6931472 - 0.9189385 + 0.8675617], rtol=1e-5)


def test_the_density_of_a_squashed_normal_is_one_in_all():
    normal = jnp.linspace(-8.0, 8.0, 4_001)[:, None]
    action, log_prob = squashed(jnp.full_like(normal, 0.3), jnp.full_like(normal, -0.5), normal)
    whole = np.trapezoid(np.exp(np.float64(log_prob)), np.float64(action[:, 0]))
    assert whole == pytest.approx(1.0, abs=1e-3)


def test_the_density_of_a_squashed_normal_is_finite_at_the_edge():
    def log_prob(mean):
        return squashed(mean, jnp.zeros((1, 1)), jnp.zeros((1, 1)))[1][0]

    value, slope = jax.value_and_grad(log_prob)(jnp.full((1, 1), 50.0))
    # -0.9189385 - 2 (log 2 - 50) = 97.694767; the slope is 2 there
    np.testing.assert_allclose(value, 97.694767, rtol=1e-6)
    np.testing.assert_allclose(slope, [[2.0]], rtol=1e-6)
