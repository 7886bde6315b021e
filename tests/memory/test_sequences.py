"""Sequences against a plain list of all that was ever added."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rondel.errors import RondelError
from rondel.memory.replay import EPSILON
from rondel.memory.sequences import Stretch, sequences

LANES, T, S, L, CAPACITY, BATCH = 2, 4, 2, 6, 24, 64  # C = 12 rows for each lane


class Rows(NamedTuple):
    obs: Any
    first: Any
    valid: Any


def stretch(r: int, first: Any = None, priority: bool = True) -> Stretch:
    """Round r: the observation says lane and time, the carry which time comes next."""
    time = r * T + np.arange(T)
    obs = time[None] + 1000 * np.arange(LANES)[:, None]
    none = np.zeros((LANES, T), bool)
    carry = np.float32(obs[:, ::S])
    # a sequence that ends with time e has error e + 1 in lane 0, twice that in lane 1
    error = np.float32((time[S - 1 :: S] + 1)[None] * np.array([[1], [2]]))
    rows = Rows(np.float32(obs), none if first is None else first, ~none)
    return jax.tree.map(jnp.array, Stretch(rows, (carry, carry + 0.5), error if priority else None))


def filled(rounds: int, exponent: float | None = 1.0, capacity: int = CAPACITY) -> tuple[Any, Any]:
    memory = sequences(capacity, BATCH, 1, L, S, exponent)
    held = memory.init(stretch(0), 1)
    add = jax.jit(memory.add)
    for r in range(rounds):
        held = add(held, stretch(r), jax.random.key(0))
    return memory, held


def whole(rounds: int, size: int = 12) -> list[int]:
    """Times at which a sequence begins that is complete and still there."""
    return list(range(max(0, rounds * T - size), rounds * T - L + 1, S))


@pytest.mark.parametrize("exponent", [None, 1.0])
@pytest.mark.parametrize("rounds", range(2, 9))
def test_what_is_drawn_is_a_sequence_as_it_happened(rounds, exponent):
    memory, held = filled(rounds, exponent)
    begun = set()
    for i in range(6):
        batch, _ = jax.jit(memory.draw)(held, jax.random.key(i), 0)
        obs = np.asarray(batch.rows.obs)
        assert obs.shape == (BATCH, L)
        assert np.asarray(batch.rows.valid).all()
        np.testing.assert_array_equal(obs, obs[:, :1] + np.arange(L))
        np.testing.assert_array_equal(batch.carry[0], obs[:, 0])
        np.testing.assert_array_equal(batch.carry[1], obs[:, 0] + 0.5)
        begun |= set(obs[:, 0].tolist())
    assert begun == {time + 1000 * lane for time in whole(rounds) for lane in range(LANES)}


@pytest.mark.parametrize("rounds", [2, 5])
def test_priorities_say_how_often_and_ratios_how_much_too_often(rounds):
    memory, held = filled(rounds)
    starts = [(lane, time) for lane in range(LANES) for time in whole(rounds)]
    weight = {(lane, time): (time + L) * (1 + lane) + EPSILON for lane, time in starts}
    total = sum(weight.values())
    batch, _ = memory.draw(held, jax.random.key(1), 0)
    for obs, ratio in zip(np.asarray(batch.rows.obs)[:, 0], np.asarray(batch.ratio), strict=True):
        lane, time = divmod(int(obs), 1000)
        np.testing.assert_allclose(ratio, weight[lane, time] / total * len(starts), rtol=1e-5)
    # stratified: each is drawn as often as its share of the total says, to within 2
    for (lane, time), share in weight.items():
        times = int((np.asarray(batch.rows.obs)[:, 0] == 1000 * lane + time).sum())
        assert abs(times - BATCH * share / total) < 2.0


def test_feedback_is_the_new_priority():
    memory, held = filled(3)
    batch, ticket = memory.draw(held, jax.random.key(2), 0)
    wanted = np.where(np.asarray(batch.rows.obs)[:, 0] == 1002, 50.0, 1e-4)
    held = memory.rank(held, ticket, jnp.array(wanted))
    batch, _ = memory.draw(held, jax.random.key(3), 0)
    assert (np.asarray(batch.rows.obs)[:, 0] == 1002).mean() > 0.95


def test_alike_means_a_ratio_of_one():
    memory, held = filled(4, None)
    batch, ticket = memory.draw(held, jax.random.key(0), 0)
    np.testing.assert_allclose(batch.ratio, 1.0, rtol=1e-6)
    same = memory.rank(held, ticket, jnp.zeros(BATCH))
    jax.tree.map(np.testing.assert_array_equal, same, held)


def test_a_lane_that_began_anew_does_not_follow_from_its_last_row():
    memory, held = filled(2)
    first = np.array([[False] * T, [True] + [False] * (T - 1)])
    held = memory.add(held, stretch(2, first), jax.random.key(0))
    valid = np.asarray(held.rows.valid)
    assert valid[0].all()
    assert np.flatnonzero(~valid[1]).tolist() == [2 * T - 1]


@pytest.mark.parametrize("turn", [False, True])
def test_lanes_that_come_in_another_order_are_not_joined(turn):
    """Rounds of a free run: what tells the lanes apart here is lane and time."""
    memory = sequences(4 * CAPACITY, BATCH, 1, L, S, None)
    held, add = memory.init(edged(0), 1), jax.jit(memory.add)
    for r in range(8):
        swapped = turn and 3 <= r < 7
        items = jax.tree.map(lambda x: x[::-1], edged(r)) if swapped else edged(r)
        held = add(held, items, jax.random.key(0))
    begun = set()
    for i in range(4):
        batch, _ = memory.draw(held, jax.random.key(i), 0)
        obs = np.asarray(batch.rows.obs)
        np.testing.assert_array_equal(obs, obs[:, :1] + np.arange(L))
        begun |= set((obs[:, 0] % 1000).tolist())
    crossing = {time for time in whole(8, 48) if any(time < b < time + L for b in (3 * T, 7 * T))}
    assert begun == set(whole(8, 48)) - (crossing if turn else set())


def edged(r: int) -> Stretch:
    items = stretch(r, priority=False)
    last = items.rows.obs[:, -1]
    return items._replace(edge=(jnp.stack([last - T if r else 0 * last, last], 1),))


def test_before_any_is_whole_nothing_is_valid():
    memory, held = filled(1)
    batch, _ = memory.draw(held, jax.random.key(0), 0)
    assert not np.asarray(batch.rows.valid).any()


def test_a_shard_has_its_part():
    memory = sequences(2 * CAPACITY, BATCH, 1, L, S, 1.0)
    held = memory.init(stretch(0), 2)
    assert held.slots.shape == (BATCH // 2,)
    assert held.rows.obs.shape == (LANES, 12)  # 48 / (2 shards x 2 lanes)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sequences(24, 8, 1, 6, 4), "must divide their length, 6, got 4"),
        (
            lambda: sequences(24, 8, 1, 6, 3).init(stretch(0), 1),
            "rollout must be a multiple of .*, 3, got 4. Use 6",
        ),
        (lambda: sequences(8, 8, 1, 6, 2).init(stretch(0), 1), "capacity must be 24 or more"),
        (
            lambda: sequences(24, 9, 1, 6, 2).init(stretch(0), 2),
            "2 memory shards, got 9. Use 8 or 10",
        ),
    ],
)
def test_what_cannot_be_gets_a_sentence(make, words):
    with pytest.raises(RondelError, match=words):
        make()


def test_prioritised_ones_need_a_priority():
    memory = sequences(CAPACITY, BATCH, 1, L, S, 1.0)
    held = memory.init(stretch(0), 1)
    with pytest.raises(RondelError, match="need items with a `priority`"):
        memory.add(held, stretch(0, priority=False), jax.random.key(0))
