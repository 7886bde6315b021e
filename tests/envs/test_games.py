"""Games for two: their rules against pgx's, and opponents that play as well as they say."""

import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pgx
import pytest

from envs.rolling import keys
from rondel.envs.guard.check import check
from rondel.envs.jax.games import connect_four, opponents, tic_tac_toe
from rondel.envs.jax.world import GAMES
from rondel.envs.registry import make
from rondel.errors import RondelError
from rondel.spaces import MASK

LANES = 64
RULES = {"TicTacToe-v0": tic_tac_toe.GAME, "ConnectFour-v0": connect_four.GAME}
PGX = {"TicTacToe-v0": "tic_tac_toe", "ConnectFour-v0": "connect_four"}


@cache
def rules(name):
    """Those of a game, as programs."""
    game = RULES[name]
    return game._replace(step=jax.jit(game.step), observe=jax.jit(game.observe))


def any_of(mask, random):
    """An allowed action per row, at random."""
    return (mask * (1 + random.random(mask.shape))).argmax(-1).astype(np.int32)


@pytest.mark.parametrize("name", GAMES)
def test_games_against_oneself_follow_the_rules_of_pgx(name):
    env, twin, random = make(name), pgx.make(PGX[name]), np.random.default_rng(0)
    state, ours = jax.jit(env.init)(keys(LANES))
    theirs = jax.jit(jax.vmap(twin.init))(keys(LANES))
    step, twin_step = jax.jit(env.step), jax.jit(jax.vmap(twin.step))
    over, results = np.zeros(LANES, bool), []
    for ply in range(1, 44):
        going = ~over
        for mine, yours in (
            (ours.obs["board"], theirs.observation),
            (ours.obs[MASK], theirs.legal_action_mask),
        ):
            np.testing.assert_array_equal(np.asarray(mine)[going], np.asarray(yours)[going])
        mover = np.asarray(theirs.current_player)
        action = any_of(np.asarray(ours.obs[MASK]), random)
        state, ours = step(state, action)
        theirs = twin_step(theirs, action)
        reward = np.asarray(theirs.rewards)[np.arange(LANES), mover]
        np.testing.assert_array_equal(np.asarray(ours.reward)[going], reward[going])
        ends = np.asarray(theirs.terminated)
        np.testing.assert_array_equal(np.asarray(ours.terminated)[going], ends[going])
        assert not np.signbit(np.asarray(ours.episode_return)[going & ~ends]).any()  # 0, not -0
        # the first player moves at odd plies
        result = reward * (1 if ply % 2 else -1)
        np.testing.assert_array_equal(
            np.asarray(ours.episode_return)[going & ends], result[going & ends]
        )
        results += result[going & ends].tolist()
        over = over | ends
        if over.all():
            break
    assert len(results) == LANES
    assert {-1, 1} <= set(results)


@pytest.mark.parametrize("name", GAMES)
def test_what_is_seen_is_all_that_there_is(name):
    game, random = rules(name), np.random.default_rng(1)
    state, back = game.start(LANES), jax.jit(game.state)
    for _ in range(5):
        obs = game.observe(state)
        jax.tree.map(np.testing.assert_array_equal, back(obs), state)
        state, _, _ = game.step(state, any_of(np.asarray(obs[MASK]), random))


@pytest.mark.parametrize(("name", "moves"), [("TicTacToe-v0", [4, 4]), ("ConnectFour-v0", [3] * 7)])
def test_an_illegal_move_loses(name, moves):
    game, lanes = rules(name), np.ones(LANES, np.int32)
    state = game.start(LANES)
    for move in moves[:-1]:
        state, reward, ended = game.step(state, move * lanes)
        assert not reward.any()
        assert not ended.any()
    assert not game.observe(state)[MASK][:, moves[-1]].any()
    _, reward, ended = game.step(state, moves[-1] * lanes)
    assert (reward == -1.0).all()
    assert ended.all()


def test_four_in_a_row_is_found_wherever_it_is():
    boards = (np.random.default_rng(2).random((512, 6, 7)) < 0.4).astype(np.int8)
    ways = [(0, 1), (1, 0), (1, 1), (1, -1)]

    def found(board):
        return any(
            0 <= r + 3 * dr < 6
            and 0 <= c + 3 * dc < 7
            and all(board[r + i * dr, c + i * dc] for i in range(4))
            for r, c, (dr, dc) in itertools.product(range(6), range(7), ways)
        )

    expected = [found(board) for board in boards]
    assert 100 < sum(expected) < 412
    obs = {"board": jnp.asarray(np.stack([boards, 0 * boards], -1))}
    got = connect_four.has_four(connect_four.state(obs).mine)
    np.testing.assert_array_equal(got, expected)


def test_the_perfect_player_knows_what_is_known():
    best = tic_tac_toe._best_moves()
    assert best[0, 0] == 0b111111111  # all nine openings draw
    assert best[0, 1 << 0] == 1 << 4  # after a corner only the centre does
    assert best[0, 1 << 4] == 0b101000101  # after the centre only corners do
    assert best[0b11, 0b11000] == 0b100  # win before you block
    assert best[0b1, 0b11000] == 0b100000  # block


def play(env_id, steps=60, lanes=LANES, seed=0):
    """Returns of games that end within so many steps, ours at random."""
    env, random = make(env_id), np.random.default_rng(seed)
    state, step = jax.jit(env.init)(keys(lanes))
    move, returns, opened = jax.jit(env.step), [], np.asarray(step.obs["board"]).sum((1, 2, 3))
    for _ in range(steps):
        state, step = move(state, any_of(np.asarray(step.obs[MASK]), random))
        returns += np.asarray(step.episode_return)[np.asarray(step.terminated)].tolist()
    return np.array(returns), opened


def test_nobody_wins_against_the_perfect_player():
    returns, opened = play("TicTacToe-v0?opponent=perfect")
    assert set(returns) == {-1.0, 0.0}
    # a coin says who begins; of 64 a mean of 32 with a deviation of 4
    assert set(opened) == {0, 1}
    assert 12 < opened.sum() < 52


@pytest.mark.long
def test_against_a_random_player_anything_may_happen():
    chance, _ = play("TicTacToe-v0?opponent=random")
    assert abs(chance.mean()) < 0.2
    assert {-1.0, 0.0, 1.0} == set(chance)


@pytest.mark.long
@pytest.mark.parametrize("name", GAMES)
def test_searching_beats_moving_at_random(name):
    returns, _ = play(f"{name}?opponent=mcts&simulations=40", steps=30, lanes=16)
    assert len(returns) > 30
    assert returns.mean() < -0.7


def seen(picture):
    """A board of connect four; x is to move."""
    rows = [list(row.strip()) for row in picture.strip().split("\n")]
    board = np.array([[[c == "x", c == "o"] for c in row] for row in rows], np.int8)
    return {"board": jnp.asarray(board[None])}


WIN = seen("""
    .......
    .......
    .......
    .......
    oo....o
    xxx...o
""")
BLOCK = seen("""
    .......
    .......
    .......
    .......
    x......
    x.xooo.
""")


@pytest.mark.long
def test_searching_finds_the_one_move():
    reply = jax.jit(opponents.mcts(connect_four.GAME, 200))
    for picture, move in ((WIN, 3), (BLOCK, 6)):
        states = jax.tree.map(lambda x: jnp.repeat(x, 8, 0), connect_four.state(picture))
        assert set(reply(states, keys(8)).tolist()) == {move}


@pytest.mark.parametrize(
    "env_id",
    ["TicTacToe-v0", "ConnectFour-v0", "TicTacToe-v0?opponent=perfect"],
)
def test_games_are_what_an_environment_should_be(env_id):
    env = make(env_id)
    assert env.spec.id == f"jax:{env_id}"
    check(env)
    assert env.game.self_play == ("?" not in env_id)


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("ConnectFour-v0?opponent=perfect", "must be random or mcts in .*, got 'perfect'"),
        ("TicTacToe-v0?opponent=me", "random, perfect or mcts"),
        ("TicTacToe-v0?opponent=mcts&simulations=0", "an integer from 1 to 100,000, got 0"),
        ("TicTacToe-v0?opponent=mcts&simulations=true", "an integer from 1"),
        (
            "TicTacToe-v0?opponent=random&simulations=10",
            "needs opponent=mcts, got 'random'",
        ),
        ("TicTacToe-v0?simulations=10", "Use jax:TicTacToe-v0.opponent=mcts&simulations=10"),
        ("jax:TicTacToe-v0?size=4", "It has opponent, simulations"),
    ],
)
def test_opponents_that_are_not_there_get_a_sentence(env_id, words):
    with pytest.raises(RondelError, match=words):
        make(env_id)
