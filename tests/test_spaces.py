"""Spaces: zeros, JSON and the way from a policy's units to the environment's."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rondel.errors import RondelError
from rondel.spaces import Box, Discrete, MultiBinary, MultiDiscrete, to_json, with_frames, zeros

inf = np.inf


def box(low, high, dtype="float32"):
    return Box(np.array(low, dtype), np.array(high, dtype), dtype)


def test_a_box_is_said_in_short_however_large():
    assert str(box([0.0, -2.0], [1.0, 6.0])) == "Box(-2 to 6, shape=(2,), float32)"
    assert str(box([-inf], [inf])) == "Box(-inf to inf, shape=(1,), float32)"
    frames = Box(np.zeros((4, 84, 84), np.uint8), np.full((4, 84, 84), 255, np.uint8), "uint8", 4)
    assert str({"seen": frames}) == "{'seen': Box(0 to 255, shape=(4, 84, 84), uint8, frames=4)}"
    assert str(Box(np.zeros(0), np.zeros(0))) == "Box(shape=(0,), float32)"


def test_minus_one_to_one_becomes_low_to_high():
    space = box([0.0, -2.0], [1.0, 6.0])
    # 0.5 is three quarters of the way: 0.75, and -2 + 0.75 * 8 = 4
    actions = np.array([[-1.0, -1.0], [0.0, 0.0], [0.5, 0.5], [1.0, 1.0]], np.float32)
    out = space.to_env(actions)
    assert out.tolist() == [[0.0, -2.0], [0.5, 2.0], [0.75, 4.0], [1.0, 6.0]]
    assert out.dtype == np.float32


def test_what_lies_beyond_is_clipped():
    space = box([0.0], [3.0])
    assert space.to_env(np.array([[-7.0], [2.0]], np.float32)).tolist() == [[0.0], [3.0]]


def test_without_bounds_a_number_passes_and_a_single_bound_still_holds():
    space = box([-inf, 0.0, -inf, -2.0], [inf, inf, 5.0, 2.0])
    actions = np.array([[-30.0, -4.0, -7.0, -30.0], [30.0, 4.0, 7.0, 0.5]], np.float32)
    assert space.to_env(actions).tolist() == [[-30.0, 0.0, -7.0, -2.0], [30.0, 4.0, 5.0, 1.0]]


def test_whole_numbers():
    space = box([0, -10], [255, 10], "int32")
    out = space.to_env(np.array([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0]], np.float32))
    assert out.dtype == np.int32
    assert out[:2].tolist() == [[0, -10], [255, 10]]
    assert out[2, 0] in (127, 128)
    assert out[2, 1] == 0


def test_bytes_reach_both_ends():
    out = box([0], [255], "uint8").to_env(np.array([[-1.0], [1.0]], np.float32))
    assert out.dtype == np.uint8
    assert out.tolist() == [[0], [255]]


def test_the_same_in_jax_and_under_jit_and_vmap():
    space = box([-inf, 0.0, -2.0], [inf, inf, 2.0])
    actions = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32) * 2
    expected = space.to_env(actions)
    np.testing.assert_allclose(jax.jit(jax.vmap(space.to_env))(jnp.asarray(actions)), expected)


bounds = st.floats(-1e6, 1e6, width=32)


@given(bounds, bounds, st.floats(-2.0, 2.0, width=32))
@example(-1.0, 0.7, 1.0)
def test_an_action_never_leaves_the_bounds(a, b, action):
    space = box([min(a, b)], [max(a, b)])
    out = space.to_env(np.array([[action]], np.float32))
    assert space.low <= out <= space.high


def test_choices_are_counted_from_where_the_environment_starts():
    assert Discrete(3).to_env(np.array([0, 2])).tolist() == [0, 2]
    assert Discrete(3, start=-1).to_env(np.array([0, 2])).tolist() == [-1, 1]
    assert MultiDiscrete((2, 3)).to_env(np.array([[1, 2]])).tolist() == [[1, 2]]
    assert MultiBinary((2,)).to_env(np.array([[1, 0]])).tolist() == [[1, 0]]


SPACES = [
    box(-inf, inf),
    box([0.0, -1.5, -inf], [1.0, inf, 2.0]),
    box(np.full((2, 3), 0.1), np.full((2, 3), 0.7)),
    box(np.zeros((2, 2, 3)), np.full((2, 2, 3), 255), "uint8"),
    Box(np.zeros((6, 2), np.uint8), np.full((6, 2), 255, np.uint8), "uint8", frames=3),
    box([-(2**31)], [2**31 - 1], "int32"),
    Box(np.zeros((0,), np.float32), np.ones((0,), np.float32)),
    Discrete(4),
    Discrete(2, start=-3),
    MultiDiscrete((2, 5)),
    MultiBinary((2, 3)),
    {"b": Discrete(2), "a": (box([0.0], [1.0]), {"c": MultiBinary((1,))})},
    (),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_space_is_json_that_others_than_python_can_read(space):
    json.dumps(to_json(space), allow_nan=False)


def test_spaces_that_differ_do_so_as_json():
    every = [
        *SPACES,
        *(with_frames(space, 1) for space in SPACES),
        box([0.0], [1.0], "float64"),
        box([0.0], [2.0]),
    ]
    kinds = {str(describe(space)): json.dumps(to_json(space)) for space in every}
    assert len(set(kinds.values())) == len(kinds)


def describe(space):
    """All that makes a space what it is."""
    if isinstance(space, dict):
        return {name: describe(part) for name, part in space.items()}
    if isinstance(space, tuple):
        return tuple(map(describe, space))
    if not isinstance(space, Box):
        return space
    return space.low.tolist(), space.high.tolist(), space.shape, space.dtype, space.frames


@pytest.mark.parametrize(("shape", "frames"), [((4, 2), 3), ((4, 2), 0), ((), 2)])
def test_frames_that_do_not_divide_the_first_axis_are_refused(shape, frames):
    with pytest.raises(RondelError, match=f"must divide the first axis of a Box, got {frames}"):
        Box(np.zeros(shape), np.ones(shape), "float64", frames)


def test_equal_bounds_of_an_image_are_written_once():
    image = box(np.zeros((84, 84, 3)), np.full((84, 84, 3), 255), "uint8")
    assert len(json.dumps(to_json(image))) < 100


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_zeros_have_the_shapes_and_types_of_the_space(batch):
    space = {
        "image": box(np.zeros((4, 4)), np.full((4, 4), 255), "uint8"),
        "pair": (Discrete(3), MultiDiscrete((2, 2))),
        "flags": MultiBinary((2,)),
    }
    out = zeros(space, *batch)
    expected = {
        "image": ((*batch, 4, 4), np.uint8),
        "pair": ((batch, np.int32), ((*batch, 2), np.int32)),
        "flags": ((*batch, 2), np.int8),
    }
    assert jax.tree.map(lambda x: (x.shape, x.dtype.type), out) == expected
    assert not any(leaf.any() for leaf in jax.tree.leaves(out))
