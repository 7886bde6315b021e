"""Both replays, against a model that remembers everything; and that XLA does not copy the ring."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from rondel.errors import RondelError
from rondel.memory.replay import EPSILON, Transitions, prioritised, uniform

SHAPES = [  # lanes, T, ahead, capacity
    (3, 4, 2, 50),  # C = 20
    (2, 1, 3, 20),  # C = 10: a round is shorter than what it looks ahead
    (1, 6, 1, 17),  # C = 18
]


class Story:
    """Lanes that go on for ever; the observation at time t of lane l is 1000 * l + t."""

    def __init__(self, lanes, length, ahead, seed=0):
        self.lanes, self.length, self.ahead = lanes, length, ahead
        self.rng, self.time = np.random.default_rng(seed), 0
        self.items = {}  # (lane, time) -> (offset, valid, priority)

    def observe(self, time):
        number = 1000 * np.arange(self.lanes)[:, None] + np.asarray(time)[None, :]
        image = np.broadcast_to((number % 251)[..., None, None], (*number.shape, 2, 3))
        return {"number": number.astype(np.float32), "image": image.astype(np.uint8)}

    def round(self, invalid=0.2):
        shape = self.lanes, self.length
        offset = self.rng.integers(1, self.ahead + 1, shape).astype(np.int32)
        valid = self.rng.random(shape) >= invalid
        priority = self.rng.exponential(size=shape).astype(np.float32)
        obs = self.observe(self.time + np.arange(self.length + self.ahead))
        number = obs["number"][:, : self.length]
        for lane, t in np.ndindex(shape):
            key = lane, self.time + t
            self.items[key] = offset[lane, t], valid[lane, t], priority[lane, t]
        self.time += self.length
        action, reward, discount = number.astype(np.int32), number / 8, number / 4
        return Transitions(obs, action, reward, discount, offset, valid, priority)

    def newest(self, count):
        return {(lane, t) for lane, t in self.items if t >= self.time - count}

    def check(self, batch, ticket, size):
        """Every row of the batch is one item, all of it; returns which."""
        batch, ticket = jax.tree.map(np.asarray, (batch, ticket))
        number = batch.obs["number"].astype(int)
        lane, time = number // 1000, number % 1000
        np.testing.assert_array_equal(ticket[0], lane)
        np.testing.assert_array_equal(ticket[1], time % size)
        for i, key in enumerate(zip(lane, time, strict=True)):
            offset, valid, _ = self.items[key]
            assert batch.next_obs["number"][i] == number[i] + offset
            assert batch.valid[i] == valid
        for obs in (batch.obs, batch.next_obs):
            assert obs["image"].dtype == np.uint8
            assert obs["image"].shape == (len(number), 2, 3)
            np.testing.assert_array_equal(obs["image"][:, 1, 2], obs["number"] % 251)
        assert batch.action.dtype == np.int32
        np.testing.assert_array_equal(batch.action, number)
        np.testing.assert_allclose(batch.reward, number / 8)
        np.testing.assert_allclose(batch.discount, number / 4)
        return set(zip(lane.tolist(), time.tolist(), strict=True))


def start(memory, like):
    """State, jitted functions, and the rows that a lane keeps."""
    state = memory.init(jax.eval_shape(lambda: jax.tree.map(jnp.asarray, like)), 1)
    ring = getattr(state, "ring", state)
    return state, jax.jit(memory.add), jax.jit(memory.draw), ring.items.valid.shape[1]


@pytest.mark.parametrize(("lanes", "length", "ahead", "capacity"), SHAPES)
def test_uniform_draws_just_the_newest_rows_lap_after_lap(lanes, length, ahead, capacity):
    story = Story(lanes, length, ahead)
    memory = uniform(capacity, batch=512, draws=1, ahead=ahead)
    state, add, draw, size = start(memory, Story(lanes, length, ahead).round())
    assert size == -(-capacity // (lanes * length)) * length
    for r in range(3 * size // length + 1):
        state = add(state, story.round(), jax.random.key(0))
        batch, ticket = draw(state, jax.random.key(r), 0)
        np.testing.assert_array_equal(batch.ratio, 1.0)
        drawn = story.check(batch, ticket, size)
        assert drawn == story.newest(size - ahead)  # 512 draws of at most 54: all of them
    assert memory.rank(state, ticket, batch.reward) is state


@pytest.mark.parametrize(("lanes", "length", "ahead", "capacity"), SHAPES)
def test_prioritised_draws_valid_rows_by_weight_lap_after_lap(lanes, length, ahead, capacity):
    story, exponent = Story(lanes, length, ahead), 0.7
    memory = prioritised(capacity, 512, 1, exponent, ahead=ahead)
    state, add, draw, size = start(memory, Story(lanes, length, ahead).round())
    rank = jax.jit(memory.rank)
    for r in range(3 * size // length + 1):
        state = add(state, story.round(), jax.random.key(0))
        # an item is gone once a later round has overwritten its row, or one of `ahead` beyond
        head = story.time % size
        gone = set(range(head, head + ahead)) if head else set()
        weight = {
            (lane, t): (story.items[lane, t][2] + EPSILON) ** exponent
            for lane, t in story.newest(size)
            if story.items[lane, t][1] and not (story.time > size and t % size in gone)
        }
        batch, ticket = draw(state, jax.random.key(r), 0)
        if not weight:
            assert not np.asarray(batch.valid).any()
            continue
        drawn = story.check(batch, ticket, size)
        assert drawn <= set(weight)
        stored = lanes * min(story.time, size - ahead)
        total = sum(weight.values())
        number = np.asarray(batch.action)
        chance = np.array([weight[n // 1000, n % 1000] / total for n in number])
        np.testing.assert_allclose(batch.ratio, stored * chance, rtol=1e-4)
        # stratified: each item is drawn n * P(i) times, give or take one and a half
        for key, w in weight.items():
            often = (number == 1000 * key[0] + key[1]).sum()
            assert abs(often - 512 * w / total) < 2.0
        # new errors for those drawn
        error = np.float32(number % 7)
        state = rank(state, ticket, -error)  # its size counts, not its sign
        for n, e in zip(number, error, strict=True):
            offset, valid, _ = story.items[n // 1000, n % 1000]
            story.items[n // 1000, n % 1000] = offset, valid, e


def test_draws_are_in_proportion_over_many_keys():
    # priorities 1, 2, 3, 4 at exponent 1: chances 0.1 .. 0.4; unstratified when a draw is one row
    memory = prioritised(8, batch=1, draws=1, exponent=1.0)
    story = Story(1, 4, 1)
    items = story.round(invalid=0.0)._replace(priority=np.float32([[1, 2, 3, 4]]))
    state, add, _, _ = start(memory, items)
    state = add(state, items, jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 20_000)
    _, (_, row) = jax.jit(jax.vmap(memory.draw, (None, 0, None)))(state, keys, 0)
    share = np.bincount(row[:, 0], minlength=8) / 20_000
    np.testing.assert_allclose(share[:4], [0.1, 0.2, 0.3, 0.4], atol=0.012)  # 3.5 sigma
    assert not share[4:].any()


@pytest.mark.parametrize("make", [uniform, lambda *a, **k: prioritised(*a, exponent=0.6, **k)])
def test_a_draw_from_nothing_gives_rows_to_mask(make):
    memory = make(50, 16, 1, ahead=2)
    items = Story(3, 4, 2).round()
    state, _, draw, _ = start(memory, items)
    batch, (lane, row) = draw(state, jax.random.key(0), 0)
    assert not np.asarray(batch.valid).any()
    np.testing.assert_array_equal(batch.ratio, 1.0)
    assert ((lane >= 0) & (lane < 3) & (row >= 0) & (row < 20)).all()


def test_a_lane_that_does_not_go_on_loses_the_items_whose_successor_is_overwritten():
    plain, ranked = uniform(40, 256, 1, ahead=2), prioritised(40, 256, 1, 1.0, ahead=2)
    story = Story(2, 4, 2)
    first, second = story.round(invalid=0.0), story.round(invalid=0.0)
    # lane 1 starts anew: other observations than those that the first round ended with
    restarted = second.obs["number"] + np.float32([[0], [500]])
    second = second._replace(obs=second.obs | {"number": restarted})
    for memory in (plain, ranked):
        state, add, draw, _ = start(memory, first)
        state = add(state, first, jax.random.key(0))
        state = add(state, second, jax.random.key(0))
        batch, ticket = draw(state, jax.random.key(1), 0)
        lane, row, valid = map(np.asarray, (*ticket, batch.valid))
        kept = set(zip(lane[valid].tolist(), row[valid].tolist(), strict=True))
        assert kept == {(i, t) for i in range(2) for t in range(8)} - {(1, 2), (1, 3)}


def test_a_late_rank_does_not_bring_back_what_is_gone():
    memory = prioritised(16, 64, 1, 1.0)
    story = Story(1, 4, 1)
    state, add, _, _ = start(memory, Story(1, 4, 1).round())
    for _ in range(4):
        state = add(state, story.round(invalid=0.0), jax.random.key(0))
    late = jnp.zeros(16, jnp.int32), jnp.arange(16, dtype=jnp.int32)
    # rows 0..3 become invalid, the observation of row 4 is overwritten
    state = add(state, story.round(invalid=1.0), jax.random.key(0))
    state = jax.jit(memory.rank)(state, late, jnp.full(16, 9.0))
    np.testing.assert_allclose(state.levels[0][:16], [0.0] * 5 + [9.0] * 11, rtol=1e-5)


def test_shards_split_batch_and_capacity():
    items = Story(2, 4, 1).round()
    for memory in (uniform(160, 64, 3, 5), prioritised(160, 64, 3, 0.6, 5)):
        assert (memory.draws, memory.warmup_rounds) == (3, 5)
        state = memory.init(items, 4)
        ring = getattr(state, "ring", state)
        assert ring.items.valid.shape == (2, 20)
        batch, _ = jax.eval_shape(lambda m=memory, s=state: m.draw(s, jax.random.key(0), 0))
        assert batch.reward.shape == (16,)


def test_bad_input_is_refused_with_what_would_work():
    items = Story(2, 4, 2).round()
    with pytest.raises(RondelError, match=r"multiple of the 4 memory shards, got 30. Use 28 or 32"):
        uniform(160, 30, 1, ahead=2).init(items, 4)
    with pytest.raises(RondelError, match=r"capacity must be 16 or more: .* 2 lanes"):
        uniform(8, 32, 1, ahead=2).init(items, 1)
    uniform(16, 32, 1, ahead=2).init(items, 1)
    with pytest.raises(RondelError, match=r"must be \[2, 5, ...\] .*, got \[2, 6"):
        uniform(160, 32, 1).init(items, 1)
    with pytest.raises(RondelError, match="priority"):
        prioritised(160, 32, 1, 0.6, ahead=2).init(items._replace(priority=None), 1)


def fused(memory, items):
    """Rounds of add, then draws (draw, learn, rank), as one program."""

    def one_round(r, carry):
        state, learned = carry

        def learn(carry, j):
            state, learned = carry
            batch, ticket = memory.draw(state, jax.random.fold_in(jax.random.key(1), j), j)
            error = batch.reward + batch.next_obs.reshape(len(batch.reward), -1)[:, 0] * 0.5
            # the ratio matters for the gradient only, not for the error: it may be read late
            learned = learned + (batch.ratio * error).sum() + batch.obs.sum(dtype=jnp.float32)
            return (memory.rank(state, ticket, error), learned), None

        state = memory.add(state, items(r), jax.random.key(0))
        return lax.scan(learn, (state, learned), jnp.arange(memory.draws))[0]

    return lambda state, rounds: lax.fori_loop(0, rounds, one_round, (state, 0.0))


@pytest.mark.parametrize("shape_dtype", [((4,), jnp.float32), ((84, 84), jnp.uint8)])
@pytest.mark.parametrize("make", [uniform, lambda *a, **k: prioritised(*a, exponent=0.6, **k)])
def test_a_fused_program_does_not_copy_the_ring(make, shape_dtype):
    lanes, length, (shape, dtype) = 8, 4, shape_dtype
    memory = make(1_000_000, 32, 4)

    def items(r):
        obs = jnp.broadcast_to(jnp.asarray(r).astype(dtype), (lanes, length + 1, *shape))
        number = jnp.ones((lanes, length)) * r
        return Transitions(
            obs, number, number, number, jnp.ones((lanes, length), jnp.int32), number > 0, number
        )

    state = jax.eval_shape(lambda: memory.init(items(0), 1))  # nothing is allocated
    program = jax.jit(fused(memory, items), donate_argnums=0)
    spare = program.lower(state, 1).compile().memory_analysis().temp_size_in_bytes
    # the smallest array of the ring, `valid`, has a byte for each item
    assert spare < 500_000, f"{spare} bytes of scratch memory: something is copied"
