"""Distributions of returns: projections and losses by hand, and as rlax has them."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rondel.ops import return_distributions as returns

with warnings.catch_warnings():  # what rlax imports is older than jax
    warnings.simplefilter("ignore")
    import rlax

RNG = np.random.default_rng(0)


def normals(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def test_a_projection_by_hand():
    values = jnp.array([0.0, 1.0, 2.0])
    share = jnp.array([[0.5, 0.25, 0.25]] * 3)
    moved = jnp.array(
        [
            # 0.25 is split into 3/4 for 0 and 1/4 for 1; 1.5 into halves; 2 stays
            [0.25, 1.5, 2.0],
            # what lies outside goes to the end: -3 to 0, 7 to 2; 1 stays
            [-3.0, 1.0, 7.0],
            # after a termination all is at the reward: 0.75 is 1/4 of 0 and 3/4 of 1
            [0.75, 0.75, 0.75],
        ]
    )
    expected = [
        [0.5 * 0.75, 0.5 * 0.25 + 0.25 * 0.5, 0.25 * 0.5 + 0.25],
        [0.5, 0.25, 0.25],
        [0.25, 0.75, 0.0],
    ]
    np.testing.assert_allclose(returns.project(moved, share, values), expected, atol=1e-6)


def test_a_projection_is_that_of_rlax():
    values = np.linspace(-3.0, 5.0, 11).astype(np.float32)
    moved, share = 4 * normals(20, 7), np.array(jax.nn.softmax(normals(20, 7)))
    expected = jax.vmap(rlax.categorical_l2_project, (0, 0, None))(moved, share, values)
    np.testing.assert_allclose(returns.project(moved, share, values), expected, atol=1e-5)


def test_a_categorical_loss_by_hand():
    model = returns.categorical(0.0, 2.0, 3)
    share = jnp.array([[0.5, 0.25, 0.25]])
    # nothing follows and the reward is 0.5: the target is 1/2 of 0 and 1/2 of 1
    misfit = model.misfit(jnp.log(share), jnp.array([0.5]), jnp.array([0.0]), jnp.zeros((1, 3)))
    assert float(misfit.loss[0]) == pytest.approx(-0.5 * np.log(0.5) - 0.5 * np.log(0.25))
    # less the entropy of the target, log 2: (log 2 + 2 log 2) / 2 - log 2
    assert float(misfit.priority[0]) == pytest.approx(0.5 * np.log(2.0))
    # the mean is 0.25 * 1 + 0.25 * 2
    assert float(misfit.td[0]) == pytest.approx(0.75 - 0.5)


def test_what_is_as_expected_surprises_no_one():
    model = returns.categorical(-1.0, 1.0, 5)
    logits = normals(4, 5)
    misfit = model.misfit(logits, jnp.zeros(4), jnp.ones(4), logits)
    np.testing.assert_allclose(misfit.priority, np.zeros(4), atol=1e-6)
    np.testing.assert_allclose(misfit.td, np.zeros(4), atol=1e-6)
    assert (np.asarray(misfit.loss) > 0.1).all()  # that is the entropy of the target


def test_a_quantile_loss_by_hand():
    # levels 1/4 and 3/4; quantiles 0 and 1; one target, 3, then -0.5
    quantiles = jnp.array([[0.0, 1.0]] * 2)
    # 3 is above both: 1/4 H(3) + 3/4 H(2) = 1/4 * 2.5 + 3/4 * 1.5
    # -0.5 is below both: 3/4 H(-0.5) + 1/4 H(-1.5) = 3/4 * 0.125 + 1/4 * 1
    loss = returns.quantile_huber(quantiles, jnp.array([[3.0], [-0.5]]))
    np.testing.assert_allclose(loss, [0.25 * 2.5 + 0.75 * 1.5, 0.75 * 0.125 + 0.25 * 1.0])


def of_batch():
    """Outputs [n, actions, 6] here and after, and what was done in between."""
    reward, discount = normals(8), np.where(RNG.random(8) < 0.3, 0.0, 0.9).astype(np.float32)
    return normals(8, 3, 6), RNG.integers(0, 3, 8), reward, discount, normals(8, 3, 6)


def loss_of(model, out, action, reward, discount, following):
    best = model.mean(following).argmax(-1)
    return model.misfit(
        model.of(out, action), reward, discount, model.of(following, best)
    ).loss.sum()


def rlax_quantile(out, action, reward, discount, following):
    levels = (np.arange(6) + 0.5) / 6

    def one(out, action, reward, discount, following):  # rlax has quantiles before actions
        return rlax.quantile_q_learning(
            out.T, levels, action, reward, discount, following.T, following.T, 1.0
        )

    return jax.vmap(one)(out, action, reward, discount, following).sum()


def rlax_categorical(out, action, reward, discount, following):
    values = jnp.linspace(-2.0, 3.0, 6)

    def one(out, action, reward, discount, following):
        return rlax.categorical_q_learning(values, out, action, reward, discount, values, following)

    return jax.vmap(one)(out, action, reward, discount, following).sum()


@pytest.mark.filterwarnings("ignore:Rlax categorical_cross_entropy")
@pytest.mark.parametrize(
    ("model", "oracle"),
    [
        (returns.quantiles(6), rlax_quantile),
        (returns.categorical(-2.0, 3.0, 6), rlax_categorical),
    ],
    ids=["quantile", "categorical"],
)
def test_losses_and_gradients_are_those_of_rlax(model, oracle):
    rows = of_batch()
    ours, slopes = jax.value_and_grad(lambda *rows: loss_of(model, *rows), (0, 4))(*rows)
    with jax.numpy_rank_promotion("allow"):
        theirs, expected = jax.value_and_grad(oracle, (0, 4))(*rows)
    assert float(ours) == pytest.approx(float(theirs), rel=1e-5)
    for got, want in zip(slopes, expected, strict=True):  # none for what follows
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_the_mean_is_over_what_an_action_may_return():
    out = normals(2, 4, 3, 5)
    assert returns.expected().mean(out) is out
    np.testing.assert_allclose(returns.quantiles(5).mean(out), out.mean(-1), rtol=1e-5)
    share = np.exp(out) / np.exp(out).sum(-1, keepdims=True)
    worth = (share * np.array([-1.0, 0.0, 1.0, 2.0, 3.0])).sum(-1)
    np.testing.assert_allclose(returns.categorical(-1.0, 3.0, 5).mean(out), worth, atol=1e-5)


def test_huber_of_the_mean_by_hand():
    model = returns.expected()
    q, action = jnp.array([[5.0, 1.0], [0.0, 9.0]]), jnp.array([1, 0])
    taken = model.of(q, action)
    assert taken.tolist() == [1.0, 0.0]
    # targets 1 + 0.5 * 4 = 3 and 0.5: errors of -2 and -0.5 cost 1.5 and 0.125
    misfit = model.misfit(
        taken, jnp.array([1.0, 0.5]), jnp.array([0.5, 0.0]), jnp.array([4.0, 7.0])
    )
    assert [x.tolist() for x in misfit] == [[1.5, 0.125], [-2.0, -0.5], [2.0, 0.5]]
