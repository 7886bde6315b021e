import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rondel.ops import optimisers
from rondel.ops.optimisers import SMALL

TREES = {
    "small ones": {"b": jnp.arange(3.0), "w": jnp.ones((2, 5))},
    "a large one": {"w": jnp.linspace(-1, 1, SMALL + 1)},
    "both, mixed": [jnp.arange(4.0), jnp.ones((SMALL, 2)), jnp.float32(7), jnp.ones(SMALL)],
}


@pytest.mark.parametrize("name", TREES)
def test_a_packed_optimiser_gives_each_parameter_the_same(name):
    params = TREES[name]
    inner = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam())
    packed = optimisers.packed(inner)
    plain_state, packed_state = inner.init(params), packed.init(params)
    for _ in range(3):
        plain, plain_state = inner.update(params, plain_state)
        same, packed_state = packed.update(params, packed_state)
    assert jax.tree.structure(same) == jax.tree.structure(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), plain, same)


def test_it_hands_parameters_on_to_those_who_want_them():
    params = {"b": jnp.ones(3), "w": jnp.full(SMALL + 1, 2.0)}
    packed = optimisers.packed(optax.add_decayed_weights(0.5))
    zeros = jax.tree.map(jnp.zeros_like, params)
    direction, _ = packed.update(zeros, packed.init(params), params)
    jax.tree.map(lambda d, p: np.testing.assert_array_equal(d, 0.5 * p), direction, params)
