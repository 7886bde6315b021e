"""pgx's games against raw pgx, and what an algorithm sees of them."""

import sys
from contextlib import closing
from functools import cache

import jax
import numpy as np
import pgx
import pytest

import rondel
from envs.rolling import keys
from execution.test_equality import assert_equal, run
from rondel.algorithms import alphazero
from rondel.envs.guard.check import check
from rondel.envs.pgx import ALONE, FOR_TWO
from rondel.envs.registry import known_ids, make
from rondel.errors import RondelError
from rondel.execution.loop.ring import Ring
from rondel.execution.stages.task import Task
from rondel.nets.images import channels_first
from rondel.nets.mlp import encode, encoded_width
from rondel.nets.torso import own_torso
from rondel.ops import random
from rondel.plan.parser import parse
from rondel.spaces import MASK, STATE
from rondel.types import Network

LANES = 16
SMALL = {"rollout": 8, "simulations": 4, "considered": 4, "updates": 2, "batch": 16}
SMALL |= {"capacity": 500, "warmup": 100, "hidden": (8,)}
SOME = ["tic_tac_toe", "connect_four", "othello", "hex"]
SLOW = ["animal_shogi", "gardner_chess", "go_9x9", "chess", "shogi", "go_19x19"]  # to compile
GAMES = [*SOME, *(pytest.param(name, marks=pytest.mark.long) for name in SLOW)]


@cache
def made(env_id):
    return make(env_id)


def any_of(mask, draws):
    """An allowed action per row, at random."""
    return (np.asarray(mask) * (1 + draws.random(mask.shape))).argmax(-1).astype(np.int32)


def test_all_of_them_are_known():
    assert {*FOR_TWO, *ALONE} <= set(pgx.available_envs())
    assert {name.removeprefix("pgx:") for name in known_ids()["pgx"]} == {*FOR_TWO, *ALONE}
    assert sorted(FOR_TWO) == sorted([*SOME, *SLOW])


@pytest.mark.parametrize("name", GAMES)
def test_a_game_goes_as_in_pgx(name):
    env, twin, draws = made(f"pgx:{name}"), pgx.make(name), np.random.default_rng(0)
    state, ours = jax.jit(env.init)(keys(LANES))
    # the first player has no name: here it is the same in all lanes
    with jax.numpy_rank_promotion("allow"):
        one = twin.init(jax.random.key(0))
    theirs = jax.tree.map(lambda x: np.broadcast_to(x, (LANES, *np.shape(x))), one)
    step = jax.jit(env.step)

    @jax.jit
    def twin_step(state, action):
        with jax.numpy_rank_promotion("allow"):
            return jax.vmap(twin.step)(state, action)

    over, ends = np.zeros(LANES, bool), 0
    for ply in range(1, 61):
        going = ~over
        for mine, yours in (
            (ours.obs["board"], theirs.observation),
            (ours.obs[MASK], theirs.legal_action_mask),
        ):
            np.testing.assert_array_equal(np.asarray(mine)[going], np.asarray(yours)[going])
        mover = np.asarray(theirs.current_player)
        action = any_of(ours.obs[MASK], draws)
        state, ours = step(state, action)
        theirs = twin_step(theirs, action)
        ended = np.asarray(theirs.terminated)
        # in turns, as algorithms that look ahead rely on
        on = going & ~ended
        np.testing.assert_array_equal(np.asarray(theirs.current_player)[on], 1 - mover[on])
        reward = np.asarray(theirs.rewards)[np.arange(LANES), mover]
        np.testing.assert_array_equal(np.asarray(ours.reward)[going], reward[going])
        np.testing.assert_array_equal(np.asarray(ours.terminated)[going], ended[going])
        result = reward * (1 if ply % 2 else -1)  # the first player's
        last = going & ended
        np.testing.assert_array_equal(np.asarray(ours.episode_return)[last], result[last])
        ends += int(last.sum())
        over = over | ended
    if name in SOME[:2]:
        assert ends == LANES


@pytest.mark.parametrize("name", GAMES)
def test_an_observation_holds_the_whole_position(name):
    game, draws = made(f"pgx:{name}").game, np.random.default_rng(1)
    state, back = game.start(LANES), jax.jit(game.state)
    step, look = jax.jit(game.step), jax.jit(game.observe)
    for _ in range(6):
        obs = look(state)
        again = back(obs)
        assert jax.tree.structure(again) == jax.tree.structure(state)
        jax.tree.map(np.testing.assert_array_equal, again, state)
        state, _, _ = step(state, any_of(obs[MASK], draws))


def test_an_illegal_move_loses():
    game = made("pgx:tic_tac_toe").game
    state, _, _ = game.step(game.start(1), np.int32([4]))
    _, reward, ended = game.step(state, np.int32([4]))
    assert (reward.item(), ended.item()) == (-1.0, True)


@pytest.mark.parametrize("env_id", ["pgx:tic_tac_toe?opponent=random", "pgx:2048"])
def test_it_is_a_sound_environment(env_id):
    check(made(env_id))


def test_2048_goes_as_in_pgx():
    env, twin, draws = made("pgx:2048"), pgx.make("2048"), np.random.default_rng(0)
    lane = keys(1)
    state, ours = jax.jit(env.init)(lane)
    theirs = twin.init(random.fold(lane[0], 0))
    step, twin_step, ended = jax.jit(env.step), jax.jit(twin.step), False
    for ply in range(1, 400):
        np.testing.assert_array_equal(ours.obs["board"][0], theirs.observation)
        np.testing.assert_array_equal(ours.obs[MASK][0], theirs.legal_action_mask)
        action = any_of(ours.obs[MASK], draws)
        state, ours = step(state, action)
        theirs = twin_step(theirs, action[0], random.fold(lane[0], ply))
        assert ours.reward[0] == theirs.rewards[0]
        if ended := bool(theirs.terminated):
            break
    assert ended
    assert ours.terminated[0]


def test_no_network_sees_the_position_in_bytes():
    env = made("pgx:connect_four")
    obs = env.game.observe(env.game.start(2))
    assert (
        encoded_width(env.spec.observation)
        == encode(env.spec.observation, obs).shape[-1]
        == 6 * 7 * 2
    )
    seen = []
    own = Network(
        lambda key: (), lambda params, obs: seen.append(set(obs)) or obs["board"][..., 0, 0]
    )
    torso, _ = own_torso(own, env.spec.observation)
    torso.apply((), obs)
    assert seen == [{"board", MASK}] * 2


@pytest.mark.parametrize("name", [name for name in FOR_TWO if name != "animal_shogi"])  # 4 x 3
def test_convolutions_see_its_planes_as_channels(name):
    shape = made(f"pgx:{name}").spec.observation["board"].shape
    assert not channels_first(shape)


def test_a_run_that_was_stopped_goes_on(tmp_path):
    fields = SMALL | {"lanes": 8, "block": 8, "tuned": False, "eval_episodes": 0}
    rondel.train("alphazero", "pgx:tic_tac_toe", steps=150, out=tmp_path / "one", **fields)
    one = rondel.resume(tmp_path / "one", steps=400)
    two = rondel.train("alphazero", "pgx:tic_tac_toe", steps=400, out=tmp_path / "two", **fields)
    jax.tree.map(np.testing.assert_array_equal, one.state, two.state)


def test_a_search_finds_what_it_finds_in_our_own_connect_four():
    env, ours = made("pgx:connect_four"), made("jax:ConnectFour-v0")
    both = [
        alphazero.make(alphazero.Config(**SMALL), e.spec._replace(lanes=8), model=e)
        for e in (env, ours)
    ]
    params = both[0].init(random.key(0)).params
    draws = np.random.default_rng(2)
    states = [e.game.start(8) for e in (env, ours)]
    acts = [jax.jit(a.act, static_argnums=4) for a in both]
    for _ in range(6):
        seen = [e.game.observe(s) for e, s in zip((env, ours), states, strict=True)]
        (one, _, found), (other, _, found_too) = (
            act(params, (), obs, keys(8), True) for act, obs in zip(acts, seen, strict=True)
        )
        np.testing.assert_allclose(found.policy, found_too.policy, atol=1e-5)
        np.testing.assert_allclose(found.value, found_too.value, atol=1e-5)
        np.testing.assert_array_equal(one, other)
        action = any_of(seen[0][MASK], draws)
        states = [e.game.step(s, action)[0] for e, s in zip((env, ours), states, strict=True)]


@pytest.mark.long  # a search is dear to compile
def test_alphazero_is_the_same_under_its_home_plan():
    env = made("pgx:tic_tac_toe")
    spec = env.spec._replace(lanes=8)

    def result(plan):
        task = Task(alphazero.make(alphazero.Config(**SMALL), spec, model=env), env, 0, 8, 2)
        with closing(Ring(task, parse(plan))) as ring:
            return run(ring, 400)

    whole = result("all")
    names = {str(path) for path, _ in jax.tree_util.tree_leaves_with_path(whole["memory"])}
    assert any("board" in name for name in names)
    assert not any(STATE in name for name in names)  # memory does without
    assert_equal(result(alphazero.CARD.plan), whole)


@pytest.mark.long
def test_alphazero_learns_it():
    with rondel.start("alphazero", "pgx:tic_tac_toe", steps=100_000) as run:
        list(run)
        played = rondel.evaluate(run, "pgx:tic_tac_toe?opponent=mcts", episodes=200).returns
    assert min(played) >= 0  # no game is lost


@pytest.mark.parametrize(
    ("env_id", "sentence"),
    [
        ("pgx:backgammon", "There is no environment 'pgx:backgammon'."),
        ("pgx:minatar-breakout", "There is no environment 'pgx:minatar-breakout'."),
        ("pgx:otello", "Did you mean pgx:othello"),
        ("pgx:othello?komi=3", "has no argument komi. It has opponent, simulations."),
        ("pgx:2048?opponent=random", "has no argument opponent. It has none."),
        ("pgx:othello?opponent=me", "opponent must be random or mcts in pgx:othello, got 'me'."),
    ],
)
def test_what_can_not_be_trained_on_is_said(env_id, sentence):
    with pytest.raises(RondelError) as error:
        make(env_id)
    assert sentence in str(error.value)


def test_without_pgx_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pgx", None)
    assert known_ids()["pgx"] == []
    with pytest.raises(RondelError, match=r'pip install "rondel\[pgx\]"'):
        make("pgx:othello")
