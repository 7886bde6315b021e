"""Pictures of tasks, and pictures out of what is seen."""

import itertools

import jax
import numpy as np
import pytest

from rondel.envs.jax.classic import cartpole
from rondel.envs.jax.drawing import BLUE, INK, PALE, RED, Canvas
from rondel.envs.jax.games.drawing import draw as draw_board
from rondel.envs.jax.world import CLASSICS, GAMES, PROBES
from rondel.envs.obs_image import observation_image
from rondel.envs.registry import make
from rondel.run.playback.single_env import single_env
from rondel.spaces import MASK, Box, Discrete, MultiBinary


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
        *(f"jax:{name}" for name in GAMES),
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


BESIDE = (0.78, 0.6)  # in a cell's stone, and beside the line of a win, whichever way that runs
MIDDLE = (0.5, 0.5)


def cells(picture, rows, columns, at=BESIDE):
    """The colour at one place of each cell."""
    height, width, _ = picture.shape
    names = {tuple(bytes.fromhex(c[1:])): c for c in (RED, BLUE, PALE, INK)}
    down = ((np.arange(rows) + at[0]) * height / rows).astype(int)
    right = ((np.arange(columns) + at[1]) * width / columns).astype(int)
    return np.array([[names[tuple(map(int, picture[y, x]))] for x in right] for y in down])


def test_a_board_has_the_cells_where_they_are_seen_and_a_line_through_what_won():
    stones = np.zeros((3, 3, 2), np.int8)
    stones[0, 0, 0] = stones[0, 1, 0] = stones[1, 0, 1] = stones[2, 2, 1] = 1
    expected = [[RED, RED, PALE], [BLUE, PALE, PALE], [PALE, PALE, BLUE]]
    assert cells(draw_board(stones, 3), 3, 3).tolist() == expected
    assert INK not in cells(draw_board(stones, 3), 3, 3, MIDDLE)
    stones[0, 2, 0] = 1
    won = cells(draw_board(stones, 3), 3, 3, MIDDLE)
    assert won[0].tolist() == [INK] * 3
    assert INK not in won[1:]
    assert INK not in cells(draw_board(stones, 4), 3, 3, MIDDLE)


@pytest.mark.parametrize("line", [[0, 4, 8], [2, 4, 6], [1, 4, 7], [6, 7, 8]])
def test_a_line_is_drawn_each_way(line):
    stones = np.zeros((9, 2), np.int8)
    stones[line, 1] = 1
    won = cells(draw_board(stones.reshape(3, 3, 2), 3), 3, 3, MIDDLE).reshape(-1)
    assert (won == INK).nonzero()[0].tolist() == line


def played(lane, game, random):
    """A game of moves at random: its pictures, and its last step."""
    step, pictures = lane.begin(game), [lane.picture()]
    while not step.terminated[0]:
        mask = np.asarray(step.obs[MASK])
        step = lane.step((mask * (1 + random.random(mask.shape))).argmax(-1))
        pictures.append(lane.picture())
    return pictures, step


@pytest.mark.parametrize("arguments", ["", "?opponent=random"])
@pytest.mark.parametrize(("name", "rows", "columns"), [("TicTacToe", 3, 3), ("ConnectFour", 6, 7)])
def test_stones_keep_their_colours_through_a_game(name, rows, columns, arguments):
    random, results, openings = np.random.default_rng(0), set(), set()
    lane = single_env(make(f"jax:{name}-v0{arguments}"), seed=0)
    for game in range(12):
        pictures, step = played(lane, game, random)
        boards = [cells(picture, rows, columns) for picture in pictures]
        for before, after in itertools.pairwise(boards):
            there = before != PALE
            np.testing.assert_array_equal(after[there], before[there])
            assert 1 <= (after != before).sum() <= (2 if arguments else 1)
        # who moves first is red; with an opponent we are, and it is the opponent's stone if one
        # lies there already
        assert set(boards[0][boards[0] != PALE]) <= ({BLUE} if arguments else set())
        assert RED in boards[1]
        openings.add((boards[0] != PALE).sum())
        won = float(step.episode_return[0])
        line = cells(pictures[-1], rows, columns, MIDDLE) == INK
        assert set(boards[-1][line]) == {1.0: {RED}, 0.0: set(), -1.0: {BLUE}}[won]
        results.add(won)
    assert results >= {-1.0, 1.0}
    assert openings == ({0, 1} if arguments else {0})


def box(*shape, dtype="uint8", high=255, frames=1):
    return Box(np.zeros(shape, dtype), np.full(shape, high, dtype), dtype, frames)


def test_one_channel_is_grey_and_three_are_colours():
    grey = np.array([[0, 128], [255, 1]], np.uint8)
    shown = observation_image(box(2, 2), grey)
    np.testing.assert_array_equal(shown, np.stack([grey] * 3, axis=-1))
    colours = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    np.testing.assert_array_equal(observation_image(box(4, 4, 3), colours), colours)
    np.testing.assert_array_equal(
        observation_image(box(3, 4, 4), np.moveaxis(colours, -1, 0)), colours
    )


@pytest.mark.parametrize("frames", [1, 4])
def test_of_stacked_frames_the_newest_is_shown(frames):
    stack = np.arange(4, dtype=np.uint8)[:, None, None].repeat(5, 1).repeat(5, 2)
    shown = observation_image(box(4, 5, 5, frames=frames), stack)
    assert shown.shape == (5, 5, 3)
    assert (shown == 3).all()


@pytest.mark.parametrize("space", [MultiBinary((5, 5, 4)), box(5, 5, 4, dtype="float32", high=1.0)])
def test_channels_that_are_flags_have_colours_of_their_own(space):
    flags = np.zeros((5, 5, 4), space.dtype)
    flags[0, 0, 0] = flags[1, 1, 1] = flags[2, 2, 1] = 1
    shown = observation_image(space, flags)
    one, other, same, none = shown[0, 0], shown[1, 1], shown[2, 2], shown[3, 3]
    assert not none.any()
    assert one.any()
    assert (one != other).any()
    np.testing.assert_array_equal(other, same)


def test_an_image_is_found_in_a_tree_and_numbers_without_bounds_are_scaled():
    endless = Box(np.full((2, 2), -np.inf), np.full((2, 2), np.inf))
    space = {"speed": box(3), "view": endless, "side": Discrete(2)}
    obs = {"speed": np.zeros(3), "view": np.array([[-1.0, 0.0], [1.0, 3.0]]), "side": 0}
    np.testing.assert_array_equal(observation_image(space, obs)[..., 0], [[0, 64], [128, 255]])


def test_what_sees_no_image_has_no_picture():
    assert observation_image({"a": box(3), "b": Discrete(2)}, {"a": np.zeros(3), "b": 1}) is None
