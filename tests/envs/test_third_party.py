"""Any other JAX environment through `episodic`: 2048 of pgx, with a mask and luck in each step."""

import jax
import jax.numpy as jnp
import numpy as np
import pgx
import pytest

import rondel
from envs.rolling import keys
from rondel import Discrete, EnvSpec
from rondel.envs.guard.check import check
from rondel.envs.guard.sampling import random_action
from rondel.envs.jax.episodic import episodic
from rondel.spaces import MultiBinary

GAME = pgx.make("2048")


def start(keys):
    first, later = jnp.moveaxis(jax.vmap(jax.random.split)(keys), 1, 0)
    return {"game": jax.vmap(GAME.init)(first), "key": later}


def move(physics, action):
    now, later = jnp.moveaxis(jax.vmap(jax.random.split)(physics["key"]), 1, 0)
    game = jax.vmap(GAME.step)(physics["game"], action, now)
    return {"game": game, "key": later}, game.rewards[:, 0], game.terminated


def observe(physics):
    game = physics["game"]
    return {
        "board": game.observation.astype(jnp.int8),
        "action_mask": game.legal_action_mask.astype(jnp.int8),
    }


@pytest.fixture(scope="module")
def env():
    observation = {"board": MultiBinary((4, 4, 31)), "action_mask": MultiBinary((4,))}
    return episodic(EnvSpec("pgx:2048", observation, Discrete(4)), start, move, observe)


@pytest.mark.long
def test_it_goes_as_pgx_alone(env):
    check(env)
    lane_key = keys(1)
    random, rows = np.random.default_rng(0), []
    state, step = jax.jit(env.init)(lane_key)
    advance = jax.jit(env.step)
    for _ in range(300):
        action = random_action(env.spec.action, 1, random, step.obs["action_mask"])
        state, step = advance(state, action)
        rows.append((action, step))
        if step.terminated[0]:
            break
    assert step.terminated[0]
    first, later = jax.random.split(lane_key[0])
    game, raw = jax.jit(GAME.init)(first), jax.jit(GAME.step)
    for action, step in rows:
        now, later = jax.random.split(later)
        game = raw(game, int(action[0]), now)
        np.testing.assert_array_equal(step.obs["board"][0], game.observation)
        assert (step.reward[0], step.terminated[0]) == (game.rewards[0], game.terminated)


SMALL = {"lanes": 16, "rollout": 16, "epochs": 1, "minibatches": 2, "hidden": (8,), "seed": 5}
ROUND = 16 * 16


@pytest.mark.long
def test_ppo_trains_on_it_and_a_cut_ring_gives_the_same_numbers(env):
    runs = [
        rondel.start("ppo", env, steps=3 * ROUND, **SMALL, **more)
        for more in ({}, {"plan": "actor*2 | learner", "on": "inline"})
    ]
    returns = [one for run in runs for report in run for one in report.returns]
    # pgx ends a game at a forbidden move with -1; all other rewards, 4, 8, 16, ..., are even
    assert not any(one % 2 for one in returns)
    whole, cut = (jax.tree.leaves(run.policy.weights) for run in runs)
    for a, b in zip(whole, cut, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.long
def test_its_runs_are_saved_and_go_on(env, tmp_path):
    rondel.train("ppo", env, steps=ROUND, eval_episodes=0, out=tmp_path, **SMALL)
    run = rondel.resume(tmp_path, env=env, steps=3 * ROUND, eval_episodes=0)
    assert run.steps >= 3 * ROUND


def test_a_forbidden_move_would_be_seen(env):
    state, step = jax.jit(env.init)(keys(1))
    advance, rewards = jax.jit(env.step), []
    for _ in range(20):  # always to the left is soon forbidden
        state, step = advance(state, np.zeros(1, np.int32))
        rewards.append(step.reward[0])
    assert -1.0 in rewards
