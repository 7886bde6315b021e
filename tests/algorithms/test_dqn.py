"""DQN: its formulas by hand, its gradient against NumPy, targets, schedules and priorities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rondel.algorithms import apex, c51, dqn
from rondel.errors import RondelError
from rondel.memory.replay import TransitionBatch
from rondel.ops import random
from rondel.spaces import MASK, Box, Discrete, MultiBinary
from rondel.types import EnvSpec

TWO = Box(np.full(2, -1.0, np.float32), np.ones(2, np.float32))
SPEC = EnvSpec("test:discrete", TWO, Discrete(3), lanes=2)
MASKED = EnvSpec("test:masked", {"x": TWO, MASK: MultiBinary((3,))}, Discrete(3), lanes=2)


@functools.cache
def build(spec=None, **fields):
    """An algorithm with its functions jitted, and its first state."""
    config = dqn.Config(**{"rollout": 4, "hidden": (4,), "capacity": 400, "batch": 64, **fields})
    algorithm = dqn.make(config, MASKED if spec == "masked" else SPEC)
    algorithm = algorithm._replace(
        gradient=jax.jit(algorithm.gradient),
        update=jax.jit(algorithm.update),
        absorb=jax.jit(algorithm.absorb),
        prepare=jax.jit(algorithm.prepare),
        act=jax.jit(algorithm.act, static_argnums=4),
    )
    return algorithm, jax.jit(algorithm.init)(random.key(0))


def q_of(params, obs):
    """The network in NumPy."""
    x = np.asarray(obs, np.float64)
    for i, layer in enumerate(params):
        x = (np.maximum(x, 0.0) if i else x) @ np.asarray(layer["w"]) + np.asarray(layer["b"])
    return x


def test_importance_weights_by_hand():
    ratio, valid = jnp.array([4.0, 0.25, 1.0, 1e-9]), jnp.array([True, True, True, False])
    # 4^-0.5 = 0.5, 0.25^-0.5 = 2, 1: divided by the greatest, 2. What is not valid does not count
    weights = dqn.importance_weights(ratio, jnp.float32(0.5), valid)
    assert weights.tolist() == [0.25, 1.0, 0.5, 0.0]
    assert dqn.importance_weights(ratio, jnp.float32(0.5), ~valid & valid).tolist() == [0.0] * 4


def test_schedules_go_in_a_line_and_stay():
    fields = {"epsilon_start": 0.9, "epsilon_end": 0.1, "epsilon_steps": 1000}
    algorithm, state = build(**fields, importance_start=0.4, importance_steps=2000)
    # after 0, 500, 1000 and 2000 steps: 0.9 - 0.8 * share; 0.4 + 0.6 * share
    for add, epsilon, importance in [
        (0, 0.9, 0.4), (500, 0.5, 0.55), (500, 0.1, 0.7), (1000, 0.1, 1.0), (3000, 0.1, 1.0),
    ]:  # fmt: skip
        state = algorithm.absorb(state, jnp.array([add, 0]))
        assert float(algorithm.acting(state).epsilon) == pytest.approx(epsilon, abs=1e-6)
        assert float(algorithm.learning(state).importance) == pytest.approx(importance, abs=1e-6)


def test_a_schedule_of_no_steps_is_refused():
    with pytest.raises(RondelError, match="epsilon_steps must be 1 or more, got 0"):
        dqn.Config(epsilon_steps=0)


def keys(n):
    return jax.jit(lambda: random.fold(random.key(0)[None], jnp.arange(n)))()


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_epsilon_is_the_share_of_random_actions(epsilon):
    n = 4_000
    algorithm, state = build()
    weights = algorithm.acting(state)._replace(epsilon=jnp.float32(epsilon))
    obs = np.full((n, 2), 0.5, np.float32)
    greedy, _, _ = algorithm.act(weights, (), obs, keys(n), False)
    best = int(q_of(state.params, obs[:1])[0].argmax())
    assert (np.asarray(greedy) == best).all()
    action, _, _ = algorithm.act(weights, (), obs, keys(n), True)
    share = np.bincount(np.asarray(action), minlength=3) / n
    # any action is as likely as another when it is random: deviation sqrt(0.25 / 4000) = 0.008
    expected = np.full(3, epsilon / 3)
    expected[best] += 1 - epsilon
    np.testing.assert_allclose(share, expected, atol=0.0 if epsilon == 0.0 else 0.03)


def test_actions_that_are_not_allowed_are_neither_taken_nor_looked_forward_to():
    n = 600
    algorithm, state = build("masked", double=False, discount=0.5)
    params = jax.tree.map(lambda p: p + 0.0, state.params)
    params[-1] = {"w": params[-1]["w"] * 0.0, "b": jnp.array([9.0, 1.0, 2.0])}
    mask = np.tile(np.array([[0, 1, 1], [0, 1, 0]], np.int8), (n // 2, 1))
    obs = {"x": np.zeros((n, 2), np.float32), MASK: mask}
    greedy, _, _ = algorithm.act(dqn.Weights(params, 1.0), (), obs, keys(n), False)
    assert greedy.tolist() == [2, 1] * (n // 2)
    action, _, _ = algorithm.act(dqn.Weights(params, 1.0), (), obs, keys(n), True)
    assert mask[np.arange(n), np.asarray(action)].all()
    assert set(action[::2].tolist()) == {1, 2}
    zeros = np.zeros(n, np.float32)
    batch = TransitionBatch(obs, obs, np.full(n, 1), zeros, zeros + 0.5, zeros == 0, zeros + 1)
    variables = dqn.Variables(params, params, jnp.float32(1.0))
    _, _, error, _ = algorithm.gradient(variables, batch, random.key(0))
    # Q(s, 1) = 1; the best allowed after it: 0.5 * 2, and 0.5 * 1
    np.testing.assert_allclose(error[::2], 0.0, atol=1e-6)
    np.testing.assert_allclose(error[1::2], 0.5, atol=1e-6)


def a_batch(n=32, seed=3):
    rng = np.random.default_rng(seed)
    obs, next_obs = rng.normal(size=(2, n, 2)).astype(np.float32)
    discount = np.where(rng.random(n) < 0.3, 0.0, 0.9).astype(np.float32)
    reward = rng.normal(size=n).astype(np.float32) * 2  # errors on both sides of Huber's corner
    ratio = rng.uniform(0.2, 3.0, n).astype(np.float32)
    action = rng.integers(0, 3, n).astype(np.int32)
    return TransitionBatch(obs, next_obs, action, reward, discount, rng.random(n) < 0.7, ratio)


def target_of(target_params, params, batch, double):
    next_q = q_of(target_params, batch.next_obs)
    best = q_of(params, batch.next_obs).argmax(-1) if double else next_q.argmax(-1)
    return batch.reward + batch.discount * next_q[np.arange(len(best)), best]


def mean_huber(error, batch, importance):
    weight = (1 / batch.ratio.astype(np.float64)) ** importance
    weight = weight / weight[batch.valid].max()
    huber = np.where(error < 1, error**2 / 2, error - 0.5)
    return (weight * huber)[batch.valid].mean()


@pytest.mark.parametrize("double", [False, True])
def test_the_gradient_is_that_of_the_loss_in_numpy(double):
    algorithm, state = build(double=double)
    rng = np.random.default_rng(0)
    params, target = (
        jax.tree.map(lambda p: rng.normal(size=p.shape).astype(np.float32), state.params)
        for _ in range(2)
    )
    batch = a_batch()
    variables = dqn.Variables(params, target, jnp.float32(0.5))
    grads, weight, feedback, metrics = algorithm.gradient(variables, batch, random.key(0))
    goal = target_of(target, params, batch, double)
    assert not np.allclose(goal, target_of(target, params, batch, not double))
    leaves, tree = jax.tree.flatten(jax.tree.map(np.float64, params))
    rows = np.arange(len(goal))

    def value(leaves):
        taken = q_of(jax.tree.unflatten(tree, leaves), batch.obs)[rows, batch.action]
        return mean_huber(np.abs(taken - goal), batch, 0.5)

    for i, got in enumerate(jax.tree.leaves(grads)):
        slopes = np.zeros(leaves[i].size)
        for k in range(leaves[i].size):
            up, down = [leaf.copy() for leaf in leaves], [leaf.copy() for leaf in leaves]
            up[i].reshape(-1)[k] += 1e-6
            down[i].reshape(-1)[k] -= 1e-6
            slopes[k] = (value(up) - value(down)) / 2e-6
        np.testing.assert_allclose(got.reshape(-1), slopes, rtol=1e-3, atol=1e-5)
    assert float(metrics["loss/q"]) == pytest.approx(value(leaves), rel=1e-5)
    assert float(weight) == batch.valid.sum()
    taken = q_of(params, batch.obs)[rows, batch.action]
    np.testing.assert_allclose(feedback, np.abs(taken - goal), rtol=1e-4, atol=1e-5)


def test_rows_that_are_not_valid_have_no_influence():
    algorithm, state = build()
    batch, other = a_batch(), a_batch(seed=9)

    def mix(good, bad):
        valid = batch.valid.reshape(-1, *[1] * (good.ndim - 1))
        return np.where(valid, good, bad * 100).astype(good.dtype)

    mixed = jax.tree.map(mix, batch, other)._replace(
        valid=batch.valid, ratio=np.where(batch.valid, batch.ratio, 1e-6).astype(np.float32)
    )
    variables = algorithm.learning(state)
    one = algorithm.gradient(variables, batch, random.key(0))
    two = algorithm.gradient(variables, mixed, random.key(0))
    for a, b in ((one[0], two[0]), (one[1], two[1]), (one[3], two[3])):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7), a, b)
    assert (np.asarray(one[2])[batch.valid] == np.asarray(two[2])[batch.valid]).all()


def same(one, two):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_the_target_is_replaced_every_so_many_updates():
    algorithm, state = build(target_every=3, target_rate=1.0)
    grads = jax.tree.map(jnp.ones_like, state.params)
    first = state.params
    for update in range(1, 7):
        state = algorithm.update(state, grads)
        expected = {3: state.params, 6: state.params}.get(update)
        if expected is not None:
            first = expected
        assert same(state.target, first)
        assert same(algorithm.learning(state).target, first)
        assert not same(state.params, first) or update % 3 == 0


def test_the_target_follows_slowly_as_a_polyak_average():
    algorithm, state = build(target_every=2, target_rate=0.25)
    grads = jax.tree.map(jnp.ones_like, state.params)
    target = state.target
    for update in range(1, 5):
        state = algorithm.update(state, grads)
        if update % 2 == 0:
            target = jax.tree.map(lambda t, p: 0.75 * t + 0.25 * p, target, state.params)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7),
            state.target, target,
        )  # fmt: skip
    assert not same(state.target, state.params)


def chains(stream, discount, n):
    """Every transition of a stream: {observation: (action, return, discount, next)}."""
    done = stream.terminated | stream.truncated
    out = {}
    for t, b in zip(*np.nonzero(stream.valid), strict=True):
        end = t
        while end < t + n - 1 and end < len(done) - 1 and not done[end, b]:
            end += 1
        if end < t + n - 1 and not done[end, b]:
            continue  # the stream ends first
        return_ = sum(discount**k * stream.reward[t + k, b] for k in range(end - t + 1))
        worth = 0.0 if stream.terminated[end, b] else discount ** (end - t + 1)
        key = stream.obs[t, b].tobytes()
        out[key] = (stream.action[t, b], return_, worth, stream.obs[end + 1, b])
    return out


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("prioritised", [False, True])
def test_n_step_transitions_from_experience_to_batch(stream, n, prioritised):
    """Over several rounds, through memory: each row is what the whole stream says of it."""
    algorithm, state = build(n_step=n, discount=0.9, prioritised=prioritised, capacity=48)
    assert algorithm.overlap == n - 1
    experience = stream(40, 2)
    known = chains(experience, 0.9, n)
    add, draw = jax.jit(algorithm.memory.add), jax.jit(algorithm.memory.draw)
    memory, seen, steps = None, set(), 0
    for r in range(10):
        tr = experience.round(r, 4, algorithm.overlap)
        items, counted = algorithm.prepare(algorithm.acting(state), tr)
        steps += int(counted.sum())
        if memory is None:
            memory = algorithm.memory.init(items, 1)
        memory = add(memory, items, random.key(r))
        batch, _ = draw(memory, random.key(r), 0)
        batch = jax.tree.map(np.asarray, batch)
        for i in np.nonzero(batch.valid)[0]:
            action, return_, worth, successor = known[batch.obs[i].tobytes()]
            assert batch.action[i] == action
            assert batch.reward[i] == pytest.approx(return_, rel=1e-5, abs=1e-6)
            assert batch.discount[i] == pytest.approx(worth, rel=1e-5)
            if worth:
                assert (batch.next_obs[i] == successor).all()
            seen.add(batch.obs[i].tobytes())
    assert len(seen) > 0.8 * len(known)
    assert steps == experience.valid.sum()  # none twice, none left out


@pytest.mark.parametrize("n", [1, 3])
def test_first_priorities_are_the_errors_that_the_actor_sees(stream, n):
    algorithm, state = build(prioritised=True, n_step=n, discount=0.9)
    experience = stream(12, 2)
    known = chains(experience, 0.9, n)
    tr = experience.round(1, 4, algorithm.overlap)
    items, _ = algorithm.prepare(algorithm.acting(state), tr)
    for b, t in zip(*np.nonzero(np.asarray(items.valid)), strict=True):
        obs = np.asarray(items.obs[b, t])
        action, return_, worth, successor = known[obs.tobytes()]
        target = return_ + worth * q_of(state.params, successor).max()
        error = abs(target - q_of(state.params, obs)[action])
        assert float(items.priority[b, t]) == pytest.approx(error, rel=1e-4, abs=1e-5)


def test_warmup_is_counted_in_whole_rounds():
    # 2 lanes of 4 steps: 8 a round, so 20 steps are 3 rounds
    algorithm, _ = build(warmup=20)
    assert algorithm.memory.warmup_rounds == 3
    assert algorithm.memory.draws == 32


@pytest.mark.parametrize(("kind", "name"), [(dqn, "dqn"), (c51, "c51"), (apex, "apex")])
def test_continuous_actions_are_refused_with_what_works(kind, name):
    with pytest.raises(
        RondelError, match=rf"^{name} needs discrete actions; test:box has Box.*ppo"
    ):
        kind.make(kind.Config(), EnvSpec("test:box", TWO, TWO))
