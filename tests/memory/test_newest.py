"""The newest round as a whole."""

import jax
import jax.numpy as jnp
import pytest

from rondel.errors import RondelError
from rondel.memory.newest import newest


def test_a_draw_is_the_newest_round_in_groups():
    memory = newest(group=2)
    like = jax.eval_shape(lambda: jnp.zeros((4, 3)))
    state = memory.init(like, 1)
    for r in range(2):
        items = jnp.arange(12.0).reshape(4, 3) + 100 * r
        state = memory.add(state, items, jax.random.key(0))
    batch, ticket = memory.draw(state, jax.random.key(0), jnp.int32(0))
    assert batch.tolist() == (100 + jnp.arange(12.0).reshape(2, 2, 3)).tolist()
    assert memory.rank(state, ticket, ()).tolist() == items.tolist()


def test_shards_of_broken_groups_are_refused():
    like = jax.eval_shape(lambda: jnp.zeros((3, 1)))
    with pytest.raises(
        RondelError, match=r"multiple of 8 \(4 memory shards, groups of 2\), got 12"
    ):
        newest(group=2).init(like, 4)
