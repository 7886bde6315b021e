"""From observations of any space to one vector."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rondel.nets.mlp import encode, encoded_width
from rondel.spaces import MASK, Box, Discrete, MultiBinary, MultiDiscrete, mask_of, zeros

FLOATS = Box(np.full(2, -np.inf, np.float32), np.full(2, np.inf, np.float32))
IMAGE = Box(np.zeros((2, 2), np.uint8), np.full((2, 2), 255, np.uint8), "uint8")
SCALAR = Box(np.float32(0), np.float32(1))

# space, one observation of it, what it becomes
CASES = {
    "floats": (FLOATS, [1.5, -300.0], [1.5, -300.0]),
    "scalar": (SCALAR, 0.25, [0.25]),
    "bytes from 0 to 1": (IMAGE, [[0, 51], [102, 255]], [0.0, 0.2, 0.4, 1.0]),
    "whole numbers as they are": (
        Box(np.zeros(2, np.int32), np.full(2, 9, np.int32), "int32"),
        [3, 9],
        [3.0, 9.0],
    ),
    "one choice": (Discrete(3), 1, [0.0, 1.0, 0.0]),
    "a choice counted from elsewhere": (Discrete(3, start=5), 2, [0.0, 0.0, 1.0]),
    "several choices": (MultiDiscrete((2, 3)), [1, 0], [0.0, 1.0, 1.0, 0.0, 0.0]),
    "flags": (MultiBinary((3,)), [1, 0, 1], [1.0, 0.0, 1.0]),
    "tuple": ((Discrete(2), FLOATS), (1, [7.0, 8.0]), [0.0, 1.0, 7.0, 8.0]),
    "dict, by name": ({"b": Discrete(2), "a": FLOATS}, {"b": 0, "a": [7.0, 8.0]}, [7, 8, 1, 0]),
    "mask left out": (
        {"x": FLOATS, MASK: MultiBinary((4,))},
        {"x": [1.0, 2.0], MASK: [1, 1, 0, 1]},
        [1.0, 2.0],
    ),
    "tree": (
        {"pair": (IMAGE, {"z": Discrete(2)}), "a": MultiBinary((1,))},
        {"pair": ([[255, 0], [0, 0]], {"z": 1}), "a": [1]},
        [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0],
    ),
}


def batched(space, obs, batch):
    """The observation as arrays of the space's types, repeated over the axes of a batch."""
    if isinstance(space, dict):
        return {name: batched(space[name], obs[name], batch) for name in space}
    if isinstance(space, tuple):
        return tuple(batched(s, o, batch) for s, o in zip(space, obs, strict=True))
    return np.broadcast_to(np.asarray(obs, space.dtype), (*batch, *space.shape))


@pytest.mark.parametrize("batch", [(3,), (2, 3)])
@pytest.mark.parametrize("case", CASES)
def test_what_an_observation_becomes(case, batch):
    space, obs, expected = CASES[case]
    out = jax.jit(partial(encode, space))(batched(space, obs, batch))
    assert out.shape == (*batch, encoded_width(space))
    assert out.dtype == jnp.float32
    np.testing.assert_allclose(out, np.broadcast_to(expected, (*batch, len(expected))), rtol=1e-6)


def test_rows_of_a_batch_stay_apart():
    space = {"image": IMAGE, "choice": MultiDiscrete((2, 2))}
    obs = zeros(space, 2, 3)
    obs["image"][1, 2] = 255
    obs["choice"][0, 1] = 1
    out = np.asarray(encode(space, obs))
    assert out[1, 2].tolist() == [1, 0, 1, 0, 1, 1, 1, 1]
    assert out[0, 1].tolist() == [0, 1, 0, 1, 0, 0, 0, 0]
    assert out[0, 0].tolist() == [1, 0, 1, 0, 0, 0, 0, 0]


def test_the_order_in_which_a_dict_was_written_does_not_matter():
    one, two = {"a": Discrete(2), "b": FLOATS}, {"b": FLOATS, "a": Discrete(2)}
    obs = {"a": np.array([1]), "b": np.array([[5.0, 6.0]], np.float32)}
    assert encode(one, obs).tolist() == encode(two, obs).tolist() == [[0.0, 1.0, 5.0, 6.0]]


def test_the_mask_is_found_where_there_is_one():
    mask = np.array([[1, 0]])
    assert mask_of({"x": np.zeros((1, 2)), MASK: mask}) is mask
    assert mask_of({"x": np.zeros((1, 2))}) is None
    assert mask_of(np.zeros((1, 2))) is None
