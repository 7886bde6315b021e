"""The rollout memory: every row once an epoch, in orders that look random."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rondel.errors import RondelError
from rondel.memory.rollout import rollout
from rondel.ops.random import permutations


def items(lanes=4, length=6):
    number = jnp.arange(lanes * length, dtype=jnp.int32).reshape(lanes, length)
    image = jnp.broadcast_to(number[..., None, None], (lanes, length, 2, 2)).astype(jnp.uint8)
    return {"obs": {"image": image, "row": number}, "reward": number.astype(jnp.float32) / 2}


def test_an_epoch_is_every_row_once_and_its_parts_stay_together():
    memory = rollout(epochs=3, minibatches=4)
    assert memory.draws == 12
    state = memory.init(jax.eval_shape(items), 1)
    state = jax.jit(memory.add)(state, items(), jax.random.key(0))
    draw = jax.jit(memory.draw)
    drawn = [draw(state, jax.random.key(1), j) for j in range(memory.draws)]
    assert all(ticket == () for _, ticket in drawn)
    assert drawn[0][0]["obs"]["image"].dtype == jnp.uint8
    rows = np.stack([batch["obs"]["row"] for batch, _ in drawn])
    assert rows.shape == (12, 6)
    for batch, _ in drawn:
        np.testing.assert_array_equal(batch["obs"]["image"][:, 0, 0], batch["obs"]["row"])
        np.testing.assert_array_equal(batch["reward"], batch["obs"]["row"] / 2)
    epochs = rows.reshape(3, 24)
    np.testing.assert_array_equal(np.sort(epochs), np.tile(np.arange(24), (3, 1)))
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert memory.rank(state, (), jnp.zeros(6)) is state


def test_the_order_comes_from_the_key_of_add():
    memory = rollout(epochs=2, minibatches=2)
    state = memory.init(items(), 1)
    orders = [memory.add(state, items(), jax.random.key(seed)).order for seed in (0, 0, 1)]
    np.testing.assert_array_equal(orders[0], orders[1])
    assert (orders[0] != orders[2]).any()


def test_minibatches_that_do_not_divide_the_rows_are_refused_with_what_would():
    with pytest.raises(RondelError, match=r"must divide the 24 rows .*, got 5. Use 2, 3, 4 or 6"):
        rollout(epochs=1, minibatches=5).init(items(), 1)


@pytest.mark.parametrize("length", [1, 2, 5, 16, 24, 130])
def test_permutations_are_permutations(length):
    orders = permutations(jax.random.key(length), 50, length)
    assert orders.dtype == jnp.int32
    np.testing.assert_array_equal(np.sort(orders), np.tile(np.arange(length), (50, 1)))


@pytest.mark.parametrize(("length", "count"), [(64, 2000), (100, 2000), (1024, 400)])
def test_permutations_look_random(length, count):
    parts = 4
    orders = np.asarray(permutations(jax.random.key(3), count, length))
    part = np.argsort(orders) * parts // length  # the minibatch that each row fell into
    # each row is equally often in each: chi-square over length x (parts - 1) degrees of freedom
    often = np.stack([(part == p).sum(0) for p in range(parts)])
    freedom = length * (parts - 1)
    chi_square = ((often - count / parts) ** 2 / (count / parts)).sum()
    assert abs(chi_square - freedom) < 5 * np.sqrt(2 * freedom)
    # two rows share a minibatch as often as chance has it, near or far
    chance = (length / parts - 1) / (length - 1)
    sigma = np.sqrt(chance * (1 - chance) / (count * length))
    for distance in (1, 2, 7, 8, 16, 32, length // 2):
        together = (part == np.roll(part, distance, axis=1)).mean()
        assert abs(together - chance) < 6 * sigma  # pairs are not quite independent: 6, not 4
    # an epoch says nothing about the next: what they share is hypergeometric
    shared = ((part[:-1] == 0) & (part[1:] == 0)).sum(1)
    share = 1 / parts
    variance = length * share**2 * (1 - share) ** 2 * length / (length - 1)
    assert abs(shared.mean() - length * share**2) < 5 * np.sqrt(variance / count)
    assert 0.8 < shared.var() / variance < 1.25
