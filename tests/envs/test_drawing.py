"""Pictures of tasks, and pictures out of what is seen."""

import jax
import numpy as np
import pytest

from rondel.envs import make
from rondel.envs.classic import cartpole
from rondel.envs.drawing import Canvas
from rondel.envs.registry import CLASSICS, PROBES
from rondel.envs.seen import picture_of
from rondel.spaces import Box, Discrete, MultiBinary


def test_a_canvas_has_the_units_of_the_task():
    # 4 units are 40 pixels: (1, 0.5) is 30 from the left, and 5 from the top of 2 units, 20 pixels
    canvas = Canvas(-2, 2, -1, 1, width=40)
    canvas.circle((1.0, 0.5), 0.2, "#0000ff")
    picture = canvas.picture()
    assert (picture.shape, picture.dtype) == ((20, 40, 3), np.uint8)
    down, across = np.nonzero((picture != 255).any(axis=-1))
    assert 3 <= down.min() <= 5 <= down.max() <= 7
    assert 28 <= across.min() <= 30 <= across.max() <= 32


@pytest.mark.parametrize(
    "env_id",
    [
        "jax:KeyDoor-v0",
        *(f"jax:{name}" for name in CLASSICS),
        *(f"probe:{name}" for name in PROBES),
    ],
)
def test_all_environments_of_ours_can_be_drawn(env_id):
    env = make(env_id)
    keys = jax.random.split(jax.random.key(0, impl="threefry2x32"), 1)
    like, _ = jax.eval_shape(env.init, keys)
    pictures = [
        env.draw(jax.tree.map(lambda x, n=n: np.full(x.shape[1:], n, x.dtype), like))
        for n in (0, 3)
    ]
    for picture in pictures:
        assert picture.dtype == np.uint8
        assert picture.ndim == 3
        assert picture.shape[2] == 3
    assert (pictures[0] != pictures[1]).any()


def test_a_pole_that_leans_to_the_right_is_drawn_so():
    picture = cartpole.draw(cartpole.Physics(*np.float32([0.0, 0.0, 0.2, 0.0])))
    red, _, blue = np.moveaxis(picture.astype(int), -1, 0)
    down, across = np.nonzero(blue - red > 100)
    assert across[down.argmin()] > across[down.argmax()]


def box(*shape, dtype="uint8", high=255, frames=1):
    return Box(np.zeros(shape, dtype), np.full(shape, high, dtype), dtype, frames)


def test_one_channel_is_grey_and_three_are_colours():
    grey = np.array([[0, 128], [255, 1]], np.uint8)
    shown = picture_of(box(2, 2), grey)
    np.testing.assert_array_equal(shown, np.stack([grey] * 3, axis=-1))
    colours = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    np.testing.assert_array_equal(picture_of(box(4, 4, 3), colours), colours)
    np.testing.assert_array_equal(picture_of(box(3, 4, 4), np.moveaxis(colours, -1, 0)), colours)


@pytest.mark.parametrize("frames", [1, 4])
def test_of_stacked_frames_the_newest_is_shown(frames):
    stack = np.arange(4, dtype=np.uint8)[:, None, None].repeat(5, 1).repeat(5, 2)
    shown = picture_of(box(4, 5, 5, frames=frames), stack)
    assert shown.shape == (5, 5, 3)
    assert (shown == 3).all()


@pytest.mark.parametrize("space", [MultiBinary((5, 5, 4)), box(5, 5, 4, dtype="float32", high=1.0)])
def test_channels_that_are_flags_have_colours_of_their_own(space):
    flags = np.zeros((5, 5, 4), space.dtype)
    flags[0, 0, 0] = flags[1, 1, 1] = flags[2, 2, 1] = 1
    shown = picture_of(space, flags)
    one, other, same, none = shown[0, 0], shown[1, 1], shown[2, 2], shown[3, 3]
    assert not none.any()
    assert one.any()
    assert (one != other).any()
    np.testing.assert_array_equal(other, same)


def test_an_image_is_found_in_a_tree_and_numbers_without_bounds_are_scaled():
    endless = Box(np.full((2, 2), -np.inf), np.full((2, 2), np.inf))
    space = {"speed": box(3), "view": endless, "side": Discrete(2)}
    obs = {"speed": np.zeros(3), "view": np.array([[-1.0, 0.0], [1.0, 3.0]]), "side": 0}
    np.testing.assert_array_equal(picture_of(space, obs)[..., 0], [[0, 64], [128, 255]])


def test_what_sees_no_image_has_no_picture():
    assert picture_of({"a": box(3), "b": Discrete(2)}, {"a": np.zeros(3), "b": 1}) is None
