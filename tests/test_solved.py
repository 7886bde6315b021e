"""Whole runs that must learn, by the default command. More seeds are in benchmarks/learning."""

from __future__ import annotations

from pathlib import Path

import pytest

import rondel


def test_ppo_solves_cartpole(tmp_path: Path) -> None:
    run = rondel.train("ppo", "CartPole-v1", steps=100_000, seed=0, out=tmp_path)
    assert run.result["eval_return"] >= 475


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "env", "steps", "goal"),
    [
        ("dqn", "CartPole-v1", 100_000, 475),
        ("ppo", "gymnasium:CartPole-v1", 100_000, 475),
        ("ppo", "Acrobot-v1", 500_000, -90),
        ("ppo", "Pendulum-v1", 300_000, -200),
        ("sac", "Pendulum-v1", 20_000, -160),
        ("td3", "Pendulum-v1", 20_000, -160),
    ],
)
def test_it_learns(algorithm: str, env: str, steps: int, goal: float, tmp_path: Path) -> None:
    run = rondel.train(algorithm, env, steps=steps, seed=1, out=tmp_path)
    assert run.result["eval_return"] >= goal
