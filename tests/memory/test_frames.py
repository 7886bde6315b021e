"""Frames that are stored once come back bit for bit; the whole observations are the oracle."""

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from marks import few_of
from rondel.memory import frames
from rondel.memory.replay import Transitions, prioritised, uniform
from rondel.memory.rollout import rollout
from rondel.memory.sequences import Stretch, sequences
from rondel.spaces import MASK, Box, MultiBinary

COLOURS, SIDE = 2, 2  # a frame is [2, 2], two of the first axis
GO_ON, RESTART, REPEAT = "go on", "restart", "the same frame again"


def box(shape, frames=1):
    return Box(np.zeros(shape, np.uint8), np.full(shape, 255, np.uint8), "uint8", frames)


def space(stacked):
    number = Box(np.zeros((), np.float32), np.full((), 1e6, np.float32))
    image = box((stacked * COLOURS, SIDE), stacked)
    return {"image": image, "number": number, MASK: MultiBinary((3,))}


class Lane:
    """A lane's rows: a stack of frames and a number of its own for each."""

    def __init__(self, stacked, seed, ahead, numbers):
        self.stacked, self.rng, self.ahead = stacked, np.random.default_rng(seed), ahead
        self.numbers = numbers
        self.start_anew()

    def frame(self):
        # few values, so that frames are the same by chance too
        return self.rng.integers(0, 2, (COLOURS, SIDE), np.uint8)

    def start_anew(self):
        """A story of which the beginning was not seen: all frames may differ."""
        self.stack = [self.frame() for _ in range(self.stacked)]
        self.rows = []

    def row(self, event):
        frame = self.stack[-1] if event == REPEAT else self.frame()
        self.stack = [frame] * self.stacked if event == RESTART else [*self.stack[1:], frame]
        self.rows.append((np.concatenate(self.stack), next(self.numbers)))

    def round(self, events, length):
        """The next rows; the last `ahead` of them come again in the next round."""
        events = iter(events)
        while len(self.rows) < length + self.ahead:
            self.row(next(events))
        rows, self.rows = self.rows[: length + self.ahead], self.rows[length:]
        return rows


class Story:
    """Lanes of rows, in rounds of items."""

    def __init__(self, lanes, length, ahead, stacked, seed):
        self.rng = np.random.default_rng(seed)
        numbers = itertools.count()  # no two rows have the same
        self.lanes = [Lane(stacked, (seed, i), ahead, numbers) for i in range(lanes)]
        self.length, self.ahead = length, ahead

    def round(self, events=None, anew=()):
        """Events [b][T + ahead], at random unless told; lanes in `anew` start another story."""
        shape = len(self.lanes), self.length
        if events is None:
            chances = [0.6, 0.3, 0.1]
            count = (len(self.lanes), self.length + self.ahead)
            events = self.rng.choice([GO_ON, RESTART, REPEAT], count, p=chances)
        for i in anew:
            self.lanes[i].start_anew()
        rows = [lane.round(e, self.length) for lane, e in zip(self.lanes, events, strict=True)]
        obs = {
            "image": np.stack([[image for image, _ in lane] for lane in rows]),
            "number": np.float32([[number for _, number in lane] for lane in rows]),
        }
        obs[MASK] = np.stack([obs["number"] % n > 1 for n in (2, 3, 5)], -1).astype(np.int8)
        offset = self.rng.integers(1, self.ahead + 1, shape).astype(np.int32) if self.ahead else 0
        number = obs["number"][:, : self.length]
        valid, priority = self.rng.random(shape) > 0.2, self.rng.exponential(size=shape)
        return Transitions(
            obs, number.astype(np.int32), number, number, offset, valid, np.float32(priority)
        )


def assert_same(one, two):
    jax.tree.map(np.testing.assert_array_equal, one, two)


# A story of its own.

EVENTS = st.sampled_from([GO_ON, GO_ON, RESTART, REPEAT])


@functools.cache
def there_and_back(stacked):
    """Observations [b, n, ...] as frames, and all of them as they come back [b * n, ...]."""

    def function(obs):
        packed = frames.pack(obs, stacked)
        lane, row = jnp.indices(obs.shape[:2], dtype=jnp.int32).reshape(2, -1)
        return packed, frames.take(packed, lane, row)

    return jax.jit(function)


@pytest.mark.parametrize("stacked", [2, 4])
@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(EVENTS, EVENTS), min_size=10, max_size=10), st.integers(0, 99))
def test_a_story_comes_back_bit_for_bit(stacked, events, seed):
    story = Story(2, len(events), 0, stacked, seed)
    image = story.round(zip(*events, strict=True)).obs["image"]
    packed, back = there_and_back(stacked)(image)
    assert packed.newest.shape == (2, stacked - 1 + len(events), COLOURS, SIDE)
    assert packed.stacked == stacked
    assert back.dtype == np.uint8
    np.testing.assert_array_equal(back, image.reshape(-1, *image.shape[2:]))


def test_ages_by_hand():
    # three frames; the second episode begins at row 2, and at row 4 a life is lost, but no frame
    rows = [[1, 2, 3], [2, 3, 4], [5, 5, 5], [5, 5, 6], [5, 6, 7], [6, 7, 8], [9, 9, 9]]
    packed = frames.pack(jnp.asarray(rows, jnp.uint8)[None, :, :, None], 3)
    assert packed.age[0].tolist() == [2, 2, 0, 1, 2, 2, 0]
    assert packed.newest[0, :, 0, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]


# The rollout.


class Rows(NamedTuple):
    obs: dict
    reward: np.ndarray


def test_a_rollout_gives_what_one_of_whole_observations_gives():
    story, length = Story(3, 8, 0, 4, 0), 8
    whole, framed = rollout(2, 3), rollout(2, 3, space(4))
    rounds = [Rows(items.obs, items.reward) for items in (story.round() for _ in range(3))]
    states = whole.init(rounds[0], 1), framed.init(rounds[0], 1)
    image = states[1].rows.obs["image"]
    assert image.newest.shape == (3, 3 + length, COLOURS, SIDE)
    for r, items in enumerate(rounds):
        states = [
            jax.jit(memory.add)(state, items, jax.random.key(r))
            for memory, state in zip((whole, framed), states, strict=True)
        ]
        for j in range(whole.draws):
            drawn = [
                jax.jit(memory.draw)(state, jax.random.key(0), j)
                for memory, state in zip((whole, framed), states, strict=True)
            ]
            assert_same(*drawn)


def test_a_rollout_of_sequences_gives_what_one_of_whole_observations_gives():
    story, length = Story(3, 8, 0, 3, 0), 4
    whole, framed = rollout(2, 3), rollout(2, 3, space(3), sequences=True)
    for r in range(3):
        items = story.round()
        rows = Rows(items.obs, items.reward)
        rows = jax.tree.map(lambda x: x.reshape(3, -1, length, *x.shape[2:]), rows)
        states = [
            jax.jit(memory.add)(memory.init(rows, 1), rows, jax.random.key(r))
            for memory in (whole, framed)
        ]
        # each of the 6 sequences keeps its 4 newest frames, and 2 before
        assert states[1].rows.obs["image"].newest.shape == (6, 2 + length, COLOURS, SIDE)
        for j in range(whole.draws):
            drawn = [
                jax.jit(memory.draw)(state, jax.random.key(0), j)
                for memory, state in zip((whole, framed), states, strict=True)
            ]
            assert_same(*drawn)


def test_what_is_not_rows_of_the_space_is_kept_whole():
    items = Rows({"image": jnp.zeros((2, 3, 5, 8, SIDE), jnp.uint8)}, jnp.zeros((2, 3)))
    memory = rollout(1, 1, {"image": space(4)["image"]})  # it was not said that these are sequences
    state = memory.add(memory.init(items, 1), items, jax.random.key(0))
    assert memory.draw(state, jax.random.key(0), 0)[0].obs["image"].shape == (6, 5, 8, SIDE)


# Sequences.


class Seen(NamedTuple):
    obs: dict
    first: np.ndarray
    valid: np.ndarray


SEQUENCES = [  # T, S, L, stacked
    (4, 2, 6, 4),
    (2, 2, 8, 5),  # a round is shorter than the frames before it
    (6, 3, 3, 3),  # no sequence leads from one round to the next
]


@pytest.mark.parametrize(("length", "stride", "sequence", "stacked"), SEQUENCES)
def test_sequences_are_those_of_whole_observations_lap_after_lap(length, stride, sequence, stacked):
    """In every third round a lane starts anew, in the midst of a story that nobody saw begin."""
    story, lanes = Story(3, length, 0, stacked, 2), 3
    made, states = [], []
    for seen in (None, space(stacked)):
        memory = sequences(90, 32, 1, sequence, stride, 1.0, space=seen)
        made.append((memory.init, jax.jit(memory.add), jax.jit(memory.draw)))
    for r in range(70 // length):
        items, anew = story.round(anew=[r % lanes] if r % 3 == 2 else []), r % 3 == 2
        first = np.zeros((lanes, length), bool)
        first[r % lanes, 0] = anew
        error = items.priority[:, ::stride]
        stretch = Stretch(Seen(items.obs, first, ~first), (), error)
        states = states or [init(stretch, 1) for init, *_ in made]
        states = [add(s, stretch, None) for s, (_, add, _) in zip(states, made, strict=True)]
        drawn = [draw(s, jax.random.key(r), 0) for s, (*_, draw) in zip(states, made, strict=True)]
        assert_same(*drawn)
    image, rounds = states[1].rows.obs["image"], -(-30 // length)
    assert image.newest.shape[:2] == (rounds * lanes, stacked - 1 + length)


# Replay.

SHAPES = [  # lanes, T, ahead, capacity, stacked
    (3, 4, 2, 50, 4),  # C = 20
    (2, 1, 3, 20, 3),  # C = 10: a round is shorter than what it looks ahead
    (1, 6, 1, 17, 4),  # C = 18
    (2, 2, 1, 16, 5),  # C = 8: a round is shorter than the frames before it
]
KINDS = {"uniform": uniform, "prioritised": functools.partial(prioritised, exponent=0.7)}


@functools.cache
def both(kind, shape):
    """The memory of whole observations and that of frames: empty, and what they do."""
    lanes, length, ahead, capacity, stacked = shape
    like = Story(lanes, length, ahead, stacked, 0).round()
    made = []
    for seen in (None, space(stacked)):
        memory = KINDS[kind](capacity, 64, 1, ahead=ahead, space=seen)
        functions = map(jax.jit, (memory.add, memory.draw, memory.rank))
        made.append((memory.init(like, 1), *functions))
    return made


LAPS = list(itertools.product(KINDS, SHAPES))


@pytest.mark.parametrize(("kind", "shape"), few_of(LAPS, LAPS[::3]))
def test_a_replay_gives_what_one_of_whole_observations_gives_lap_after_lap(kind, shape):
    lanes, length, ahead, _, stacked = shape
    made = both(kind, shape)
    story, states = Story(lanes, length, ahead, stacked, 1), [state for state, *_ in made]
    for r in range(60 // length):
        items, drawn = story.round(), []
        for i, (_, add, draw, rank) in enumerate(made):
            states[i] = add(states[i], items, jax.random.key(0))
            drawn.append(draw(states[i], jax.random.key(r), 0))
            batch, ticket = drawn[-1]
            states[i] = rank(states[i], ticket, batch.reward % 7.0)
        assert_same(*drawn)


ROUND = st.tuples(st.integers(0, 2**16), st.sets(st.integers(0, 2)))


@pytest.mark.parametrize(
    "shape", [SHAPES[1], *(pytest.param(s, marks=pytest.mark.long) for s in SHAPES[::2])]
)
@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=15)
@given(st.lists(ROUND, min_size=1, max_size=30))
def test_whatever_is_drawn_is_what_was_seen_also_from_lanes_that_start_anew(kind, shape, rounds):
    lanes, length, ahead, _, stacked = shape
    state, add, draw, _ = both(kind, shape)[1]
    story, seen, after = Story(lanes, length, ahead, stacked, rounds[0][0]), {}, {}
    for seed, anew in rounds:
        story.rng = np.random.default_rng(seed)
        items = story.round(anew=[i for i in anew if i < lanes])
        for i, t in np.ndindex(lanes, length + ahead):
            seen[items.obs["number"][i, t]] = items.obs["image"][i, t]
        for i, t in np.ndindex(lanes, length):
            here, there = items.obs["number"][i, [t, t + items.offset[i, t]]]
            after[here] = there
        state = add(state, items, jax.random.key(0))
        batch, _ = jax.tree.map(np.asarray, draw(state, jax.random.key(seed), 0))
        for j in np.flatnonzero(batch.valid):
            here, there = batch.obs["number"][j], batch.next_obs["number"][j]
            assert batch.action[j] == here
            assert after[here] == there
            np.testing.assert_array_equal(batch.obs["image"][j], seen[here])
            np.testing.assert_array_equal(batch.next_obs["image"][j], seen[there])


@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_lane_that_starts_anew_loses_three_items_more_and_no_others(kind, wraps):
    shape = 2, 4, 1, 200, 4  # C = 100
    lanes, length, ahead, _, stacked = shape
    made = both(kind, shape)
    story, states = Story(lanes, length, ahead, stacked, 1), [state for state, *_ in made]
    rounds = [*(story.round() for _ in range(25 if wraps else 3)), story.round(anew=[1])]
    rounds = [items._replace(valid=np.ones_like(items.valid)) for items in rounds]
    for items in rounds:
        states = [m[1](s, items, jax.random.key(0)) for m, s in zip(made, states, strict=True)]
    rings = [getattr(state, "ring", state) for state in states]
    whole, framed = (set(map(tuple, np.argwhere(ring.items.valid))) for ring in rings)
    # at the ring's end whole observations lose nothing: there are rows beyond it
    lost = {(1, 96), (1, 97), (1, 98), (1, 99)} if wraps else {(1, 8), (1, 9), (1, 10)}
    assert whole - framed == lost
    assert not framed - whole
    if kind == "prioritised":
        leaves, *above = framed_levels = states[1].levels
        for lane, row in lost:
            assert leaves[row * lanes + lane] == 0.0
        for level, below in zip(above, framed_levels[:-1], strict=True):
            sums = np.asarray(below).reshape(-1, 16).sum(1)
            np.testing.assert_allclose(level[: len(sums)], sums, rtol=1e-5)


def stacked_items(r, lanes, length, shape, dtype=jnp.uint8):
    obs = jnp.broadcast_to(jnp.asarray(r).astype(dtype), (lanes, length + 1, *shape))
    number = jnp.ones((lanes, length)) * r
    one = jnp.ones((lanes, length), jnp.int32)
    return Transitions(obs, number, number, number, one, number > 0, number)


@pytest.mark.parametrize("kind", KINDS)
def test_four_frames_take_a_quarter(kind):
    items = jax.eval_shape(lambda: stacked_items(0, 8, 8, (4, 84, 84)))
    held = []
    for seen in (None, box((4, 84, 84), 4)):
        memory = KINDS[kind](100_000, 32, 4, space=seen)
        state = jax.eval_shape(lambda m=memory: m.init(items, 1))
        held.append(sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state)))
    assert held[1] < 1.01 / 4 * held[0]


def test_shards_keep_their_parts():
    items = stacked_items(0, 2, 4, (4, 3))
    state = uniform(160, 64, 1, space=box((4, 3), 4)).init(items, 4)
    # 20 rows of 160 / 4 items in 2 lanes, 4 for the frames before, 1 ahead
    assert state.items.obs.frames.age.shape == (2, 25)
    assert state.items.obs.frames.newest.shape == (2, 28, 1, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fused_program_does_not_copy_the_film(kind):
    lanes, length, shape = 8, 4, (4, 12, 12)
    memory = KINDS[kind](1_000_000, 8, 4, space=box(shape, 4))

    def one_round(r, carry):
        def learn(carry, j):
            state, learned = carry
            batch, ticket = memory.draw(state, jax.random.fold_in(jax.random.key(1), j), j)
            error = batch.reward + batch.next_obs.sum((1, 2, 3), dtype=jnp.float32)
            learned = learned + (batch.ratio * error).sum() + batch.obs.sum(dtype=jnp.float32)
            return (memory.rank(state, ticket, error), learned), None

        state, learned = carry
        state = memory.add(state, stacked_items(r, lanes, length, shape), jax.random.key(0))
        return lax.scan(learn, (state, learned), jnp.arange(memory.draws))[0]

    def program(state, rounds):
        return lax.fori_loop(0, rounds, one_round, (state, 0.0))

    like = stacked_items(0, lanes, length, shape)
    state = jax.eval_shape(lambda: memory.init(like, 1))  # nothing is allocated
    compiled = jax.jit(program, donate_argnums=0).lower(state, 1).compile()
    spare = compiled.memory_analysis().temp_size_in_bytes
    # the smallest array of the ring, `valid`, has a byte for each item
    assert spare < 500_000, f"{spare} bytes of scratch memory: something is copied"
