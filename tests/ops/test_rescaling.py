"""The scale of values: by hand, as rlax has it, and there and back."""

import warnings

import jax.numpy as jnp
import numpy as np

from rondel.ops import return_distributions
from rondel.ops.return_distributions import rescale, restore

with warnings.catch_warnings():  # what rlax imports is older than jax
    warnings.simplefilter("ignore")
    import rlax

FAR = np.array([-1e4, -300.0, -3.0, -0.01, 0.0, 1e-4, 0.5, 8.0, 500.0, 2e4], np.float32)


def test_by_hand():
    # √(3 + 1) - 1 + 3 / 2 = 2.5, and the same below 0; √(0.21 + 1) - 1 + 0.105 = 0.205
    scaled = rescale(jnp.array([3.0, -3.0, 0.21, 0.0]), 0.5)
    np.testing.assert_allclose(scaled, [2.5, -2.5, 0.205, 0.0], rtol=1e-5)
    np.testing.assert_allclose(restore(jnp.array([2.5, -2.5]), 0.5), [3.0, -3.0], rtol=1e-5)


def test_it_is_that_of_rlax():
    np.testing.assert_allclose(rescale(FAR), rlax.signed_hyperbolic(FAR, 1e-3), rtol=1e-6)
    near = rescale(FAR)
    np.testing.assert_allclose(
        restore(near), rlax.signed_parabolic(near, 1e-3), rtol=1e-3, atol=1e-3
    )


def test_there_and_back():
    np.testing.assert_allclose(restore(rescale(FAR)), FAR, rtol=1e-5, atol=1e-6)


def test_a_target_on_that_scale_by_hand():
    model = return_distributions.rescaled(0.5)
    ones = jnp.ones(1)
    # what follows is worth h⁻¹(2.5) = 3: the target is h(1 + 2 / 3 * 3) = h(3) = 2.5
    misfit = model.misfit(2.0 * ones, ones, ones * 2 / 3, 2.5 * ones)
    np.testing.assert_allclose(misfit.td, [-0.5], rtol=1e-5)
    np.testing.assert_allclose(misfit.loss, [0.125], rtol=1e-5)
    np.testing.assert_allclose(misfit.priority, [0.5], rtol=1e-5)
    np.testing.assert_allclose(model.mean(jnp.array([[2.5, 0.0]])), [[3.0, 0.0]], rtol=1e-5)
