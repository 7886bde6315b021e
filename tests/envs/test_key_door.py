"""KeyDoor-v0: its rules one by one, an expert that wins, and chance that doesn't."""

import jax
import numpy as np
import pytest

from envs.rolling import keys, random_actions, roll
from rondel.envs.guard.check import check
from rondel.envs.jax import key_door
from rondel.envs.jax.key_door import DOWN, LEFT, OPEN, RIGHT, TAKE, UP, Place, expert
from rondel.envs.registry import make


def place(row=0, column=0, held=0, opened=0, fits=0, steps=3):
    """The red key in row 1, the blue one in row 3, the treasure in row 4."""
    at = Place(row, column, 1, 3, 4, fits, held, opened, steps)
    return jax.tree.map(lambda x: np.full(1, x, np.int32), at)


def moved(at, action):
    after, reward, over = key_door.move(at, np.full(1, action))
    return jax.tree.map(lambda x: x[0].item(), (after, reward, over))


@pytest.mark.parametrize(
    ("row", "column", "opened", "action", "there"),
    [
        (0, 0, 0, UP, (0, 0)),
        (0, 0, 0, LEFT, (0, 0)),
        (4, 7, 1, DOWN, (4, 7)),
        (4, 7, 1, RIGHT, (4, 7)),
        (1, 1, 0, DOWN, (2, 1)),
        (1, 1, 0, RIGHT, (1, 2)),
        (2, 3, 0, RIGHT, (2, 3)),  # the door is shut
        (2, 3, 1, RIGHT, (2, 4)),
        (1, 3, 1, RIGHT, (1, 3)),  # here is no door
        (2, 4, 1, UP, (2, 4)),  # nor beside one that stands in it
        (3, 5, 1, LEFT, (3, 5)),
    ],
)
def test_steps_and_walls(row, column, opened, action, there):
    after, reward, over = moved(place(row, column, opened=opened), action)
    assert (after.row, after.column) == there
    assert (reward, over) == (0.0, False)


@pytest.mark.parametrize(
    ("at", "action", "after"),
    [
        (place(1, 2), TAKE, {"held": 1}),
        (place(3, 2), TAKE, {"held": 2}),
        (place(2, 3, held=1, fits=0), OPEN, {"opened": 1, "held": 1}),
        (place(2, 3, held=2, fits=1), OPEN, {"opened": 1, "held": 2}),
    ],
)
def test_hands_that_are_sure(at, action, after):
    got, reward, over = moved(at, action)
    assert {name: getattr(got, name) for name in after} == after
    assert (reward, over) == (0.0, False)


@pytest.mark.parametrize(
    ("at", "action"),
    [
        (place(0, 2), TAKE),  # nothing lies here
        (place(1, 3), TAKE),
        (place(3, 2, held=1), TAKE),  # a second key
        (place(2, 3), OPEN),  # without a key
        (place(2, 3, held=2, fits=0), OPEN),  # with the other one
        (place(1, 3, held=1), OPEN),  # beside the door
        (place(2, 3, held=1, opened=1), OPEN),  # which is open already
        (place(3, 7, held=1, opened=1), TAKE),  # beside the treasure
    ],
)
def test_hands_that_are_not_end_it(at, action):
    assert moved(at, action)[1:] == (0.0, True)


def test_the_treasure_is_worth_one():
    assert moved(place(4, 7, held=1, opened=1), TAKE)[1:] == (1.0, True)


def test_which_key_fits_is_seen_once():
    first, later = (key_door.observe(place(fits=1, steps=n))[0].tolist() for n in (0, 1))
    assert first == [0, 0, 1, 3, 4, 0, 0, 1]
    assert later == [0, 0, 1, 3, 4, 0, 0, key_door.HIDDEN]
    assert key_door.observe(place(held=2))[0, 3] == key_door.ROWS  # it is gone from there


def test_it_is_sound():
    check(make("jax:KeyDoor-v0"))


def test_an_expert_always_wins():
    env = make("KeyDoor-v0")
    lanes, step = 64, jax.jit(env.step)
    state, seen = jax.jit(env.init)(keys(lanes))
    told = [None] * lanes
    begun = np.asarray(seen.obs)
    assert len(np.unique(begun, axis=0)) > 50
    assert (begun[:, 2] != begun[:, 3]).all()
    won = np.zeros(lanes)
    for _ in range(key_door.LIMIT - 1):
        pairs = [expert(o, t) for o, t in zip(np.asarray(seen.obs), told, strict=True)]
        action, told = map(list, zip(*pairs, strict=True))
        state, seen = step(state, np.array(action, np.int32))
        won = np.maximum(won, np.asarray(seen.reward))
        if won.all():
            break
        # its next episode has another key: only the first one of each lane is looked at
        told = [None if f else t for f, t in zip(np.asarray(seen.first), told, strict=True)]
    assert won.all()


def test_chance_does_not():
    env = make("KeyDoor-v0")
    steps = roll(env, keys(64), random_actions(env, 1_000, 64))[2]
    assert np.asarray(steps.terminated).sum() > 10_000
    assert not np.asarray(steps.reward).any()
