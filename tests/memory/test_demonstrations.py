"""Two memories as one: shares, tickets, and what is not told stays as it was."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rondel.memory import priorities
from rondel.memory.demonstrations import with_demonstrations
from rondel.memory.sequences import Stretch, sequences
from rondel.types import Memory

LANES, T, S, L, BATCH = 2, 4, 2, 6, 512
SHOWN = 10  # rounds of S rows, in one lane


class Rows(NamedTuple):
    obs: Any
    first: Any
    valid: Any


def stretch(lanes: int, rows: int, begin: int = 0) -> Stretch:
    """Observations say the time, from `begin` on, and the lane in thousands."""
    obs = np.float32(begin + np.arange(rows)[None] + 1000 * np.arange(lanes)[:, None])
    none = np.zeros((lanes, rows), bool)
    return Stretch(Rows(obs, none, ~none), obs[:, ::S], np.ones((lanes, rows // S), np.float32))


@cache
def both(share: float, shards: int = 1) -> tuple[Memory, Any]:
    """Both memories, and what they hold after three rounds."""
    shown = stretch(1, SHOWN * S, begin=10_000)
    memory = with_demonstrations(
        lambda n: sequences(n, BATCH, 1, L, S, exponent=1.0),
        24 * shards,
        shown,
        SHOWN,
        (SHOWN + 1) * S,
        share,
    )
    init = jax.jit(memory.init, static_argnums=1)
    add, draw, rank = map(jax.jit, (memory.add, memory.draw, memory.rank))
    memory = Memory(init, add, draw, rank, memory.draws)
    held = memory.init(stretch(LANES, T), shards)
    for r in range(3):
        held = memory.add(held, stretch(LANES, T, r * T), jax.random.key(0))
    return memory, held


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_share_of_each_batch_was_shown(share):
    memory, held = both(share)
    batch, _ = memory.draw(held, jax.random.key(1), 0)
    obs = np.asarray(batch.rows.obs)
    np.testing.assert_array_equal(obs, obs[:, :1] + np.arange(L))  # whole sequences of one kind
    np.testing.assert_array_equal(batch.carry, obs[:, 0])
    # a deviation of sqrt(0.25 * 0.75 / 512) = 0.02
    assert abs((obs[:, 0] >= 10_000).mean() - share) <= 0.06 * (0.0 < share < 1.0)
    if share == 1.0:  # all of them: each stride up to the last whole one
        assert set(obs[:, 0] - 10_000) == set(range(0, SHOWN * S - L + 1, S))


def test_a_share_is_drawn_anew_each_time():
    memory, held = both(0.25)
    one, two = (memory.draw(held, jax.random.key(k), 0)[1][0] for k in (1, 2))
    assert (np.asarray(one) != np.asarray(two)).any()


def test_only_what_was_taken_is_ranked():
    memory, held = both(0.5)
    batch, ticket = memory.draw(held, jax.random.key(1), 0)
    shown = np.asarray(batch.rows.obs)[:, 0] >= 10_000
    after = memory.rank(held, ticket, jnp.where(shown, 7.0, 3.0))
    # of 512 rows each sequence was taken at least once from either
    for levels, weight in ((after.own.levels, 3.0), (after.shown.levels, 7.0)):
        leaves = np.asarray(levels[0])
        np.testing.assert_allclose(leaves[leaves > 0], weight, rtol=1e-5)
    alone = memory.rank(held, (ticket[0] | True, *ticket[1:]), jnp.full(BATCH, 7.0))
    jax.tree.map(np.testing.assert_array_equal, alone.own, held.own)


def test_no_word_leaves_a_leaf_and_its_sums_as_they_are():
    put, assign = jax.jit(priorities.put), jax.jit(priorities.assign)
    levels = put(priorities.empty(40), np.arange(40), np.ones(40, np.float32))
    told = assign(levels, np.array([3, 3, 20]), np.float32([5.0, np.nan, np.nan]))
    assert np.flatnonzero(np.asarray(told[0][:40]) != 1.0).tolist() == [3]
    assert float(priorities.total(told)) == 44.0


def test_each_shard_has_all_of_them():
    _, held = both(0.5, shards=2)
    assert held.shown.slots.shape == held.own.slots.shape == (BATCH // 2,)
    assert int(held.shown.filled) == SHOWN * S
    assert held.shown.rows.obs.shape == (1, (SHOWN + 1) * S)


def test_what_is_shown_is_kept_for_good():
    memory, held = both(0.5)
    more = held
    for r in range(3, 9):
        more = memory.add(more, stretch(LANES, T, r * T), jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, more.shown, held.shown)
