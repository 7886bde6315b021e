"""AlphaZero: whose value is whose, what a search finds, and that a small game is learned whole."""

import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nim import BEST, GAME, NIM, PILE, VALUES, all_piles

import rondel
from execution.test_equality import assert_equal, run
from rondel.algorithms import alphazero
from rondel.algorithms.alphazero import Found, Rows
from rondel.algorithms.tuned import TUNED
from rondel.envs.jax.games import tic_tac_toe
from rondel.envs.registry import make
from rondel.errors import RondelError
from rondel.execution.loop.ring import Ring
from rondel.execution.stages.task import Task
from rondel.memory.sequences import SequenceBatch
from rondel.ops import random
from rondel.plan.parser import parse
from rondel.spaces import MASK
from rondel.types import Trajectory

SMALL = {"rollout": 8, "simulations": 4, "considered": 4, "updates": 2, "batch": 16}
SMALL |= {"capacity": 500, "warmup": 100, "hidden": (8,)}
NONE = np.array([], int)


def build(env=NIM, **fields):
    spec = env.spec._replace(lanes=8)
    algorithm = alphazero.make(alphazero.Config(**{**SMALL, **fields}), spec, model=env)
    return algorithm, algorithm.init(random.key(0))


def keys(count, seed=1):
    return jax.vmap(lambda i: random.fold(random.key(seed), i))(jnp.arange(count))


def board(picture):
    """A position of tic-tac-toe; x is to move."""
    cells = np.array(list("".join(picture.split())))
    mine, theirs = (int(((cells == c) << np.arange(9)).sum()) for c in "xo")
    state = tic_tac_toe.Board(jnp.uint32([mine]), jnp.uint32([theirs]))
    return tic_tac_toe.observe(state)


POSITIONS = {
    "win": ("xx. oo. ...", 2),
    "win instead of a block": ("oo. xx. ...", 5),
    "block": ("oo. x.. ...", 2),
    "block a diagonal": ("o.. .o. x..", 8),
}


def test_with_a_network_that_knows_nothing_the_search_wins_and_blocks():
    algorithm, state = build(make("TicTacToe-v0"), simulations=200, considered=9)
    nothing = jax.tree.map(jnp.zeros_like, state.params)
    obs = jax.tree.map(lambda *x: jnp.concatenate(x), *(board(p) for p, _ in POSITIONS.values()))
    look = jax.jit(algorithm.act, static_argnums=4)
    action, _, found = look(nothing, (), obs, keys(len(POSITIONS)), False)
    assert dict(zip(POSITIONS, action.tolist(), strict=True)) == {
        name: move for name, (_, move) in POSITIONS.items()
    }
    assert (found.policy.argmax(-1) == action).all()
    assert found.value[0] > 0.5  # a win is near, and it is ours
    np.testing.assert_allclose(found.policy.sum(-1), 1.0, rtol=1e-5)
    assert not found.policy[obs[MASK] == 0].any()
    again, _, _ = look(nothing, (), obs, keys(len(POSITIONS), seed=2), False)
    np.testing.assert_array_equal(again, action)  # nothing is left to chance


@pytest.mark.long  # a search is dear to compile
def test_a_lanes_search_does_not_depend_on_the_lanes_beside_it():
    algorithm, state = build()
    obs, look = all_piles(), jax.jit(algorithm.act, static_argnums=4)
    whole, _, _ = look(state.params, (), obs, keys(PILE), True)
    turned = jax.tree.map(lambda x: x[::-1], obs)
    back, _, _ = look(state.params, (), turned, keys(PILE)[::-1], True)
    np.testing.assert_array_equal(whole, back[::-1])


def trajectory(reward, terminated, valid):
    """One lane."""
    rows = (jnp.asarray(x)[:, None] for x in (reward, terminated, valid))
    reward, terminated, valid = rows
    never = jnp.zeros_like(terminated)
    nothing = (), jnp.zeros(1, jnp.int32)
    return Trajectory((), (), (), reward, terminated, never, valid, (), *nothing)


def test_targets_by_hand():
    """A game that its last mover wins, the step that resets, and two moves of the next game."""
    tr = trajectory(
        [0.0, 0.0, 1.0, 0.0, 0.0, 0.0],
        [False, False, True, False, False, False],
        [True, True, True, False, True, True],
    )
    value, last = jnp.array([[0.1], [0.2], [0.3], [0.9], [0.4], [0.5]]), jnp.array([0.6])

    def of(turn, value_lambda, strayed=NONE):
        found = Found((), value, jnp.zeros((6, 1), bool).at[strayed].set(True))
        return alphazero.targets(tr, found, last, turn, value_lambda)[:, 0]

    # results: won by who moved third and first, lost by who moved second. The other game is worth
    # 0.6 to who moves next, hence -0.6 to who moved before, and 0.6 to the one before that
    rows = np.array([0, 1, 2, 4, 5])
    np.testing.assert_allclose(of(-1.0, 1.0)[rows], [1.0, -1.0, 1.0, 0.6, -0.6], atol=1e-6)
    # one move ahead: minus what comes next
    np.testing.assert_allclose(of(-1.0, 0.0)[rows], [-0.2, -0.3, 1.0, -0.5, -0.6], atol=1e-6)
    # in between: t5 = -0.6; t4 = -(0.5 * 0.5 + 0.5 * -0.6) = 0.05; t2 = 1;
    # t1 = -(0.5 * 0.3 + 0.5 * 1) = -0.65; t0 = -(0.5 * 0.2 + 0.5 * -0.65) = 0.225
    np.testing.assert_allclose(of(-1.0, 0.5)[rows], [0.225, -0.65, 1.0, 0.05, -0.6], atol=1e-6)
    # with the opponent's reply inside of a step the next position is one's own
    np.testing.assert_allclose(of(1.0, 1.0)[rows], [1.0, 1.0, 1.0, 0.6, 0.6], atol=1e-6)
    # the second move of the first game and the first one of the other strayed: these positions are
    # worth what the search said, and so is the one before, to the other player
    strayed = of(-1.0, 1.0, np.array([1, 4]))
    np.testing.assert_allclose(strayed[rows], [-0.2, 0.2, 1.0, 0.4, -0.6], atol=1e-6)


def test_some_moves_stray_in_training_and_none_in_greedy_games():
    lanes = 2_000
    algorithm, state = build(stray=0.25, simulations=2, considered=2)
    obs = GAME.observe(jnp.full(lanes, 2).at[: lanes // 2].set(1))  # of one stone there is one move
    look = jax.jit(algorithm.act, static_argnums=4)
    action, _, found = look(state.params, (), obs, keys(lanes), True)
    assert 0.2 < found.strayed.mean() < 0.3
    assert (action[: lanes // 2] == 0).all()  # any legal one
    moves = np.asarray(action[lanes // 2 :])[np.asarray(found.strayed[lanes // 2 :])]
    assert 0.4 < moves.mean() < 0.6  # each alike
    greedy, _, found = look(state.params, (), obs, keys(lanes), False)
    assert not found.strayed.any()
    assert (greedy[lanes // 2 :] == 1).all()  # taking both wins


def test_the_loss_by_hand():
    """Two moves and no network: logits and value are biases."""
    algorithm, state = build(hidden=(), weight_cost=0.1, value_cost=2.0)
    params = jax.tree.map(jnp.zeros_like, state.params)
    params["critic"][0]["b"] = jnp.array([np.arctanh(0.5)])
    obs = {"pile": jnp.array([[2], [2], [1], [2]]), MASK: jnp.array([[[1, 1]]] * 4, jnp.int8)}
    obs[MASK] = obs[MASK].at[2, 0, 1].set(0)
    rows = Rows(
        obs=obs,
        policy=jnp.array([[[0.75, 0.25]], [[0.5, 0.5]], [[1.0, 0.0]], [[9.0, 9.0]]]),
        target=jnp.array([[1.0], [-1.0], [0.5], [9.0]]),
        first=jnp.zeros((4, 1), bool),
        valid=jnp.array([[True], [True], [True], [False]]),
    )
    batch = SequenceBatch(rows, (), jnp.ones(4))
    grads, weight, _, metrics = algorithm.gradient(params, batch, random.key(0))
    assert float(weight) == 3.0
    # the search's own entropy: (0.5623 + 0.6931 + 0) / 3; cross-entropy: (ln 2 + ln 2 + 0) / 3
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25)) + np.log(2)
    assert float(metrics["entropy"]) == pytest.approx(entropy / 3, abs=1e-5)
    apart = float(metrics["loss/policy"])
    assert apart == pytest.approx((2 * np.log(2) - entropy) / 3, abs=1e-5)
    # (0.5² + 1.5² + 0²) / 3
    assert float(metrics["loss/value"]) == pytest.approx(2.5 / 3, abs=1e-5)
    # d / d bias of the first move: mean of p - π = (-0.25 + 0 + 0) / 3, and 0.1 * 2 * 0
    np.testing.assert_allclose(grads["policy"][0]["b"], [-0.25 / 3, 0.25 / 3], atol=1e-5)
    # 2 * mean of 2 (v - z) (1 - v²) = 4 * (-0.5 + 1.5 + 0) / 3 * 0.75 = 1, and 0.2 * 0.5493
    expected = 1.0 + 0.2 * np.arctanh(0.5)
    np.testing.assert_allclose(grads["critic"][0]["b"], [expected], rtol=1e-4)


def test_rows_take_what_the_search_said_and_how_the_game_ended():
    algorithm, state = build(rollout=3)
    piles = jnp.array([3, 2, 0, 7])  # the first took one, the second the other two
    obs = jax.tree.map(lambda x: x[:, None], GAME.observe(piles))
    found = Found(jnp.full((3, 1, 2), 0.5), jnp.zeros((3, 1)), jnp.zeros((3, 1), bool))
    tr = trajectory([0.0, 1.0, 0.0], [False, True, False], [True, True, False])
    tr = tr._replace(obs=obs, first=jnp.array([[True], [False], [False], [True]]), extras=found)
    items, steps = algorithm.prepare(state.params, tr)
    assert steps.tolist() == [2]
    assert items.rows.target[0, :2].tolist() == [-1.0, 1.0]
    assert items.rows.valid.tolist() == [[True, True, False]]
    assert items.rows.obs["pile"].tolist() == [[3, 2, 0]]


@functools.cache
def task():
    algorithm, _ = build()
    return Task(algorithm, NIM, 3, lanes=8, block=2)


def result(plan, lag):
    ring = Ring(task(), parse(plan, lag=lag))
    try:
        return run(ring, 600)
    finally:
        ring.close()


@pytest.mark.long  # a search is dear to compile
def test_the_home_plan_gives_the_numbers_of_the_whole_ring():
    assert_equal(result(alphazero.CARD.plan, 2), result("all", 2))


@pytest.mark.long
def test_a_small_game_is_learned_whole():
    fields = SMALL | {"updates": 32, "batch": 64, "hidden": (32,), "simulations": 8}
    trained = rondel.start(
        "alphazero", NIM, steps=6_000, tuned=False, lanes=8, learning_rate=0.01, **fields
    )
    for _ in trained.rounds():
        pass
    obs, judge = all_piles(), trained.setup.task.algorithm
    action, _, found = jax.jit(judge.act, static_argnums=4)(
        trained.state.params, (), obs, keys(PILE), False
    )
    np.testing.assert_allclose(found.value, VALUES, atol=0.25)
    assert {pile: int(action[pile - 1]) for pile in BEST} == BEST
    assert trained.evaluate(4).mean == 1.0  # who begins with seven wins


@pytest.mark.parametrize("env", ["CartPole-v1", "gymnasium:CartPole-v1"])
def test_without_rules_there_is_nothing_to_look_ahead_by(env):
    with pytest.raises(RondelError, match=r"offers none. Use TicTacToe-v0, ConnectFour-v0"):
        rondel.start("alphazero", env)


@pytest.mark.parametrize("field", ["normalise_observations", "scale_rewards"])
def test_what_is_seen_and_earned_stays_as_it_is(field):
    with pytest.raises(RondelError, match=f"Leave out {field}"):
        rondel.start("alphazero", "TicTacToe-v0", **{field: True})


def test_without_mctx_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mctx", None)
    with pytest.raises(RondelError, match=r'pip install "rondel\[search\]"'):
        rondel.start("alphazero", "TicTacToe-v0")
    with pytest.raises(RondelError, match=r'pip install "rondel\[search\]"'):
        make("TicTacToe-v0?opponent=mcts")


def test_the_page_has_the_settings_that_are_tuned():
    page = (Path(__file__).parents[2] / "docs" / "algorithms" / "alphazero.md").read_text()
    said = " ".join(page.partition("**Tuned settings.**")[2].partition("\n\n")[0].split())
    tuned = TUNED["alphazero"]
    assert tuned["TicTacToe-v0"] == {"block": 16}
    wanted = tuned["ConnectFour-v0"]
    assert f"{wanted['lanes']} lanes in blocks of {wanted['block']}, rounds of 64 steps" in said
    assert wanted["rollout"] == 64
    assert (
        f"{wanted['updates']} updates a round, a memory of {wanted['capacity']:,} positions" in said
    )
    assert f"with {wanted['warmup']:,} of warm-up, searches that consider all 7" in said
    assert wanted["considered"] == 7
    assert f"`--stray {wanted['stray']}` and `--network {wanted['network']}`" in said
    assert len(wanted) == 9
    with pytest.raises(RondelError, match=r"board needs images of 4x4 or more.*is 3x3"):
        rondel.explain("alphazero", "TicTacToe-v0", network="board")
