"""Runs that stop and go on: what `load` and `resume` promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rondel
from rondel import RondelError
from rondel.run.storage import locate
from run.small import DQN, PPO, SMALL


def assert_same_state(one: rondel.Run, two: rondel.Run) -> None:
    assert (one.steps, one.episodes) == (two.steps, two.episodes)
    trees = [(run.ring.tree(), run.ring.stored()) for run in (one, two)]
    jax.tree.map(np.testing.assert_array_equal, *trees)


@pytest.mark.parametrize("name", SMALL)
def test_twice_as_long_equals_resumed(tmp_path: Path, name: str) -> None:
    long = rondel.train(
        name, "CartPole-v1", steps=2_000, out=tmp_path / "long", eval_episodes=0, **SMALL[name]
    )
    rondel.train(
        name, "CartPole-v1", steps=1_000, out=tmp_path / "short", eval_episodes=0, **SMALL[name]
    )
    resumed = rondel.resume(tmp_path / "short", steps=2_000, eval_episodes=0)
    assert_same_state(long, resumed)
    rows = [json.loads(x) for x in (tmp_path / "short/metrics.jsonl").read_text().splitlines()]
    steps = [row["steps"] for row in rows]
    assert steps == sorted(set(steps))


def test_a_resumed_gymnasium_run_keeps_all_but_the_episodes(tmp_path: Path) -> None:
    env = "gymnasium:CartPole-v1"
    first = rondel.train("dqn", env, steps=300, out=tmp_path, eval_episodes=0, **DQN)
    loaded = rondel.load(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, first.state, loaded.state)
    jax.tree.map(np.testing.assert_array_equal, first.ring.stored(), loaded.ring.stored())
    assert not np.asarray(loaded.ring.tree()["lanes"].tail.valid).any()  # of the episodes given up
    assert rondel.resume(tmp_path, steps=600, eval_episodes=0).steps >= 600


def test_a_loaded_run_acts_as_before(tmp_path: Path) -> None:
    run = rondel.train("ppo", "CartPole-v1", steps=500, out=tmp_path, eval_episodes=0, **PPO)
    obs = np.random.default_rng(0).normal(size=(20, 4))
    np.testing.assert_array_equal(run.policy.act(obs), rondel.load(tmp_path).policy.act(obs))
    assert rondel.evaluate(tmp_path, episodes=7).mean == rondel.evaluate(run, episodes=7).mean


def test_resume_wants_a_larger_total(tmp_path: Path) -> None:
    rondel.train("ppo", "CartPole-v1", steps=300, out=tmp_path, eval_episodes=0, **PPO)
    with pytest.raises(RondelError, match="larger total"):
        rondel.resume(tmp_path)


def test_a_damaged_checkpoint_offers_the_one_before(tmp_path: Path) -> None:
    rondel.train("dqn", "CartPole-v1", steps=200, out=tmp_path, eval_episodes=0, **DQN)
    rondel.resume(tmp_path, steps=400, eval_episodes=0)
    newest = locate.find_checkpoint(tmp_path)
    state = newest / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-10])
    with pytest.raises(RondelError, match="000001"):
        rondel.load(tmp_path)
    older = rondel.resume(tmp_path / "checkpoints" / "000001", steps=400, eval_episodes=0)
    assert any(
        "memory of this checkpoint is gone" in note for note in older.notes
    )  # only the newest keeps it
    assert older.steps >= 400


def test_an_env_with_keys_in_its_state_can_be_saved_and_resumed(tmp_path: Path) -> None:
    from rondel.envs.jax.episodic import episodic

    spec = rondel.EnvSpec("own:noise", rondel.Box(-np.ones(1), np.ones(1)), rondel.Discrete(2))

    def move(state: Any, action: Any) -> Any:
        keys = jax.vmap(lambda key: jax.random.fold_in(key, 1))(state["key"])
        x = jax.vmap(lambda key: jax.random.uniform(key, minval=-1.0))(keys)
        return {"key": keys, "x": x}, x, action > 1

    def begin(keys: Any) -> Any:
        return {"key": keys, "x": jnp.zeros(keys.shape)}

    env = episodic(spec, begin, move, lambda state: state["x"][:, None], time_limit=9)
    long = rondel.train("ppo", env, steps=1_000, out=tmp_path / "a", eval_episodes=0, **PPO)
    rondel.train("ppo", env, steps=500, out=tmp_path / "b", eval_episodes=0, **PPO)
    resumed = rondel.resume(tmp_path / "b", env=env, steps=1_000, eval_episodes=0)
    assert_same_state(long, resumed)


def test_a_goal_that_was_met_is_said_on_resume(tmp_path: Path) -> None:
    rondel.train(
        "ppo", "CartPole-v1", steps=9_000, until_return=1.0, out=tmp_path, eval_episodes=0, **PPO
    )
    with pytest.raises(RondelError, match="another --until-return"):
        rondel.resume(tmp_path, steps=20_000)


def test_loading_imports_no_module_that_a_file_names(tmp_path: Path) -> None:
    run = rondel.train("ppo", "CartPole-v1", steps=300, out=tmp_path, eval_episodes=0, **PPO)
    spec = run.setup.task.env.spec._replace(id="gymnasium:evil:Env-v0")
    task = run.setup.task._replace(env=run.setup.task.env._replace(spec=spec))
    run.setup = run.setup._replace(task=task)
    run.save()
    with pytest.raises(RondelError, match="pass it again"):
        rondel.load(tmp_path)


def test_a_run_that_was_not_free_leaves_it_to_the_plan_that_it_goes_on_with(tmp_path: Path) -> None:
    fields = DQN | {"lanes": 32, "plan": "actor*2 | learner", "on": "inline"}
    with rondel.start("dqn", "CartPole-v1", **fields) as run:
        saved = run.save(tmp_path)

    def goes_on(**placing: Any) -> bool:
        with rondel.load(saved, **placing) as run:
            return run.setup.plan.free

    assert not goes_on()
    assert goes_on(plan="impala")
    assert not goes_on(plan="impala", free=False)
