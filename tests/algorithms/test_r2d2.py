"""R2D2: targets and priorities by hand and by rlax, what is remembered, probes and plans."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rondel
from execution.test_equality import BLOCK, LANES, SEED, assert_equal, run
from rondel.algorithms import catalogue, dqn, r2d2
from rondel.envs.registry import make
from rondel.errors import RondelError
from rondel.execution.loop.ring import Ring
from rondel.execution.stages.task import Task
from rondel.memory.sequences import SequenceBatch
from rondel.ops import random, return_distributions
from rondel.plan.parser import parse
from rondel.spaces import Box, Discrete
from rondel.types import EnvSpec

with warnings.catch_warnings():  # what rlax imports is older than jax
    warnings.simplefilter("ignore")
    import rlax

TWO = Box(np.full(2, -1.0, np.float32), np.ones(2, np.float32))
SPEC = EnvSpec("test:discrete", TWO, Discrete(3), lanes=2)
# sequences of 2 + 6 rows that begin at every second
TINY = {"rollout": 4, "updates": 2, "batch": 32, "capacity": 400, "warmup": 0, "hidden": (8, 8)}
TINY |= {"memory_size": 4, "sequence": 6, "overlap": 4, "burn_in": 2, "n_step": 3}


def test_priorities_by_hand():
    surprise = jnp.array([[1.0, 5.0], [3.0, 2.0], [2.0, 9.0]])
    valid = jnp.array([[True, True], [True, True], [True, False]])
    # 0.9 * 3 + 0.1 * 2; of the second only 5 and 2 count: 0.9 * 5 + 0.1 * 3.5
    np.testing.assert_allclose(r2d2.priority_of(0.9, surprise, valid), [2.9, 4.85], rtol=1e-6)
    assert r2d2.priority_of(0.9, surprise, valid & False).tolist() == [0.0, 0.0]


def rows_of(reward, terminated, truncated, valid, actions=2):
    """Rows [m, 1] of which only the rewards and ends matter, and random values [m, 1, actions]."""
    rng = np.random.default_rng(0)
    m = len(reward)
    column = [np.asarray(x)[:, None] for x in (reward, terminated, truncated, valid)]
    action = rng.integers(0, actions, (m, 1)).astype(np.int32)
    obs, first = np.zeros((m, 1, 2), np.float32), np.zeros((m, 1), bool)
    rows = r2d2.Rows(obs, first, action, *column)
    return rows, *rng.normal(size=(3, m, 1, actions)).astype(np.float32)


def misfits(returns, *rows, **fields):
    config = r2d2.Config(**TINY | fields)
    return jax.jit(functools.partial(r2d2.misfits, config, returns))(*rows)


def test_targets_are_those_of_rlax():
    """Double, 3-step, on their scale; no step but the last one is shortened."""
    rng, m = np.random.default_rng(1), 9
    reward = rng.normal(size=m).astype(np.float32) * 20
    terminated, never = np.arange(m) == 4, np.zeros(m, bool)
    rows, out, target, chooser = rows_of(reward, terminated, never, ~never)
    returns = return_distributions.rescaled()
    misfit, valid = misfits(returns, rows, out, target, chooser, discount=0.9)
    oracle = functools.partial(
        rlax.transformed_n_step_q_learning, n=3, tx_pair=rlax.SIGNED_HYPERBOLIC_PAIR
    )
    error = jax.jit(oracle)(
        out[:-1, 0],
        rows.action[:-1, 0],
        target[1:, 0],
        chooser[1:, 0].argmax(-1),
        reward[:-1],
        np.where(terminated, 0.0, 0.9).astype(np.float32)[:-1],
    )
    assert valid.all()
    np.testing.assert_allclose(-misfit.td[:, 0], error, rtol=1e-3, atol=1e-4)


def test_ends_by_hand():
    """A time limit at row 1, its reset at row 2; row 4 does not lead to row 5."""
    yes, no = True, False
    rows, out, target, chooser = rows_of(
        reward=np.float32([1, 2, 0, 4, 8, 16, 32]),
        terminated=[no] * 7,
        truncated=[no, yes, no, no, no, no, no],
        valid=[yes, yes, no, yes, no, yes, yes],
    )
    best = target[np.arange(7), 0, chooser[:, 0].argmax(-1)]
    returns = return_distributions.expected()
    misfit, valid = misfits(returns, rows, out, target, chooser, discount=0.5)
    assert valid[:, 0].tolist() == [yes, yes, no, yes, no, yes]
    taken = out[np.arange(7), 0, rows.action[:, 0]]
    # 1 + 0.5 * 2 + 0.25 Q(2); 2 + 0.5 Q(2); 4 + 0.5 Q(4), since row 4 is torn; 16 + 0.5 Q(6)
    wanted = [2 + 0.25 * best[2], 2 + 0.5 * best[2], 4 + 0.5 * best[4], 16 + 0.5 * best[6]]
    td = np.asarray(misfit.td)[[0, 1, 3, 5], 0]
    np.testing.assert_allclose(td, taken[[0, 1, 3, 5]] - wanted, rtol=1e-4)


@functools.cache
def build(**fields):
    algorithm = r2d2.make(r2d2.Config(**TINY | fields), SPEC)
    return algorithm, jax.jit(algorithm.init)(random.key(0))


def acted(algorithm, weights, stream, rounds):
    """Rounds as trajectories, with what an actor noted along the stream."""
    act = jax.jit(algorithm.act, static_argnums=4)
    lane = jnp.arange(stream.lanes)
    carry, noted = algorithm.carry(lane), []
    first = np.concatenate([np.ones((1, stream.lanes), bool), ~stream.valid])
    keys = random.fold(random.key(0)[None], lane)
    for t in range(rounds * algorithm.rollout):
        new = algorithm.carry(lane)
        carry = jax.tree.map(
            lambda n, c, f=first[t]: jnp.where(f.reshape(-1, *[1] * (c.ndim - 1)), n, c), new, carry
        )
        _, carry, extras = act(weights, carry, stream.obs[t], keys, False)
        done = carry.recalled._replace(action=jnp.array(stream.action[t]))
        carry = carry._replace(recalled=done)
        noted.append(extras)
    noted = jax.tree.map(lambda *xs: np.stack(xs), *noted)

    def extras_of(r):
        before = max(0, algorithm.overlap - r * algorithm.rollout)
        start = r * algorithm.rollout - algorithm.overlap + before
        rows = jax.tree.map(lambda x: x[start : (r + 1) * algorithm.rollout], noted)
        return jax.tree.map(
            lambda x: np.concatenate([np.zeros((before, *x.shape[1:]), x.dtype), x]), rows
        )

    for r in range(rounds):
        trajectory = stream.round(r, algorithm.rollout, algorithm.overlap)
        yield trajectory._replace(extras=extras_of(r))


@pytest.mark.long
@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_learners_that_know_no_more_say_what_actors_said(memory, stream):
    """With the actor's own weights a sequence is as wrong as its first priority says.

    So it is only if what was remembered is stored where sequences begin, the burn-in goes on from
    there, and both make the same targets.
    """
    algorithm, state = build(memory=memory)
    lines, memory = stream(24, 2, seed=5), None
    prepare, add, first = jax.jit(algorithm.prepare), jax.jit(algorithm.memory.add), {}
    for r, trajectory in enumerate(acted(algorithm, algorithm.acting(state), lines, 6)):
        items, steps = prepare(algorithm.acting(state), trajectory)
        assert steps.tolist() == lines.valid[4 * r : 4 * r + 4].sum(0).tolist()
        memory = algorithm.memory.init(items, 1) if memory is None else memory
        memory = add(memory, items, random.key(0))
        for k in range(2):  # it ends with row 2 (k + 1) of the round and began 8 rows before
            begun = (4 * r + 2 * (k + 1) - 8) // 2
            first |= {(lane, begun): float(items.priority[lane, k]) for lane in range(2)}
    batch, (lane, begun) = jax.jit(algorithm.memory.draw)(memory, random.key(1), 0)
    gradient = jax.jit(algorithm.gradient)
    _, weight, feedback, _ = gradient(algorithm.learning(state), batch, random.key(0))
    places = list(zip(lane.tolist(), begun.tolist(), strict=True))
    assert len(set(places)) > 10
    expected = [first[place] for place in places]
    np.testing.assert_allclose(feedback, expected, rtol=1e-4, atol=1e-6)
    assert float(weight) == np.asarray(batch.rows.valid)[:, 2:-1].sum()


def test_a_lane_is_known_also_where_all_see_the_same_and_remember_nothing(stream):
    """As at the beginning of episodes, where an environment has one start."""
    algorithm, state = build()
    lines, rows, lane = stream(4, 2, seed=5), algorithm.overlap + algorithm.rollout, jnp.arange(2)
    weights, start = algorithm.acting(state), algorithm.carry(lane)
    act = jax.jit(algorithm.act, static_argnums=4)
    obs, edges = np.zeros((2, 2), np.float32), []
    for r in range(2):
        times = [random.fold(random.key(r)[None], t) for t in range(rows)]
        noted = [act(weights, start, obs, random.fold(key, lane), True)[2] for key in times]
        trajectory = lines.round(0, algorithm.rollout, algorithm.overlap)
        trajectory = trajectory._replace(
            obs=np.zeros_like(trajectory.obs), extras=jax.tree.map(lambda *xs: np.stack(xs), *noted)
        )
        items, _ = jax.jit(algorithm.prepare)(weights, trajectory)
        edges += np.asarray(items.edge).reshape(-1, 2).tolist()
    assert len(set(map(tuple, edges))) == len(edges) == 8  # two lanes, two rounds, before and last


def test_nothing_is_learned_through_the_burn_in():
    """Rows of the burn-in change what is remembered, but no gradient reaches what was stored."""
    config = r2d2.Config(**TINY)
    network = r2d2.network_for(config, SPEC, 3)
    params, rng = jax.jit(network.init)(random.key(0)), np.random.default_rng(0)
    obs = rng.normal(size=(8, 1, 2)).astype(np.float32)
    flags, ones = np.zeros((8, 1), bool), np.ones((8, 1), np.float32)
    rows = r2d2.Rows(obs, flags, np.zeros((8, 1), np.int32), ones, flags, flags, ~flags)

    def total(cell, obs, burn_in):
        config = r2d2.Config(**TINY | {"burn_in": burn_in})
        recalled = network.start(1)._replace(cell=cell)
        return r2d2.values(config, network, params, recalled, rows._replace(obs=obs)).sum()

    cell = network.start(1).cell
    learned = jax.jit(jax.value_and_grad(total, (0, 1)), static_argnums=2)
    value, (of_cell, of_obs) = learned(cell, obs, 2)
    assert not any(np.asarray(x).any() for x in jax.tree.leaves(of_cell))
    assert not np.asarray(of_obs[:2]).any()
    assert np.asarray(of_obs[2:]).any()
    moved = obs + np.float32(np.arange(8) == 0)[:, None, None]
    assert learned(cell, moved, 2)[0] != value
    assert any(np.asarray(x).any() for x in jax.tree.leaves(learned(cell, obs, 0)[1][0]))


def said(network, params, carry, obs, action):
    """What a network says of rows [8, n], step by step as an actor would, after two of burn-in."""
    step, out = jax.jit(network.step), []
    for seen, done in zip(obs, action, strict=True):
        cell, each = step(params, carry, seen)
        carry = carry._replace(cell=cell, action=done)
        out.append(each)
    return np.stack(out[2:])


def test_a_gradient_weighs_errors_of_both_networks_from_what_was_stored():
    """The network chooses, its copy values, and both go on from the memory that the actor had."""
    config, n = r2d2.Config(**TINY), 3
    algorithm, state = build()
    rng = np.random.default_rng(0)

    def stirred(tree):
        return jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), tree)

    params, target = stirred(state.params), stirred(state.params)
    obs, (reward, _) = stirred(np.zeros((8, n, 2))), stirred(np.zeros((2, 8, n)))
    action, no, yes = rng.integers(0, 3, (8, n)), np.zeros((8, n), bool), np.ones((8, n), bool)
    network = r2d2.network_for(config, SPEC, 3)
    carry = network.start(n)._replace(cell=stirred(network.start(n).cell), action=action[0])
    rows = r2d2.Rows(obs, no, action, reward, no, no, yes)
    ratio = np.array([0.5, 1.0, 4.0], np.float32)
    batch = SequenceBatch(jax.tree.map(lambda x: np.swapaxes(x, 0, 1), rows), carry, ratio)
    variables = dqn.Variables(params, target, jnp.float32(0.5))
    _, weight, feedback, metrics = jax.jit(algorithm.gradient)(variables, batch, random.key(0))

    out, valued = (said(network, p, carry, obs, action) for p in (params, target))
    learned = jax.tree.map(lambda x: x[2:], rows)
    misfit, valid = misfits(return_distributions.rescaled(), learned, out, valued, out)
    # ratio ** -0.5 is 1.41, 1 and 0.5, of which the greatest becomes 1
    weights = np.array([1.0, 0.5**0.5, 0.5**1.5])
    cost = np.mean(weights * np.asarray(misfit.loss))
    assert float(metrics["loss/q"]) == pytest.approx(cost, rel=1e-4)
    np.testing.assert_allclose(
        feedback, r2d2.priority_of(0.9, misfit.priority, valid), rtol=1e-4, atol=1e-5
    )
    assert float(weight) == 5 * n


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"overlap": 5, "sequence": 8},
            "must divide burn_in . sequence, 10, got overlap=5. Use 3, 6 or 7",
        ),
        ({"rollout": 5}, "rollout must be a multiple of sequence - overlap, 2, got 5. Use 6"),
        ({"sequence": 1}, "sequence must be 2 or more, got 1"),
        ({"priority_mix": 1.5}, "priority_mix must be from 0 to 1, got 1.5"),
        ({"memory": "none"}, "got 'none'. Use apex"),
        ({"memory": "rnn"}, "memory must be gru or lstm, got 'rnn'"),
    ],
)
def test_what_can_not_work_gets_a_sentence(fields, sentence):
    with pytest.raises(RondelError, match=sentence):
        r2d2.make(r2d2.Config(**TINY | fields), SPEC)


@pytest.mark.long
def test_a_policy_hands_its_memory_to_whoever_asks():
    with rondel.start("r2d2", "probe:memory", lanes=2, tuned=False, **TINY) as started:
        action, carry = started.policy.act(np.zeros(2, np.float32))
        assert action in (0, 1)
        assert carry.recalled.action.tolist() == [action]


@pytest.mark.long
def test_it_answers_what_was_asked_three_steps_ago():
    with rondel.start(
        "r2d2", "probe:memory", tuned=False, steps=5_000, lanes=16, rollout=8, updates=8,
        batch=32, capacity=8_000, warmup=500, learning_rate=0.005, hidden=(16, 16), memory="gru",
        memory_size=16, sequence=8, overlap=4, burn_in=4, discount=0.9, n_step=3, target_every=50,
    ) as started:  # fmt: skip
        for _ in started.rounds():
            pass
        assert started.evaluate(200).mean == 1.0


ENV = make("CartPole-v1?velocities=false")


def result(plan, lag=0):
    config = r2d2.Config(**TINY | {"warmup": 200, "capacity": 2_000})
    algorithm = r2d2.make(config, ENV.spec._replace(lanes=LANES))
    ring = Ring(Task(algorithm, ENV, SEED, LANES, BLOCK), parse(plan, lag))
    try:
        return run(ring, 900)
    finally:
        ring.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("plan", "lag", "other"),
    [
        ("all", 0, "env*2 | policy | learner"),
        ("all", 2, "actor*2 | memory | gradient+update"),
        # shards draw other rows than a whole memory does, wherever they are
        ("actor+memory*2 | gradient+update", 2, "actor*2 | memory*2 | gradient+update"),
    ],
)
def test_other_plans_give_the_same_numbers(plan, lag, other):
    one = result(plan, lag)
    assert any(np.asarray(x).any() for x in jax.tree.leaves(one["lanes"].carry.recalled))
    assert_equal(result(other, lag), one)


def test_the_plan_of_the_paper_is_that_of_apex():
    assert str(parse("apex")) == r2d2.CARD.plan
    assert catalogue.find("r2d2").card.max_lag is None
