"""--eval-every: evaluations during a run, which change none of its numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rondel
from rondel import RondelError
from rondel.run.analysis.compare import compare
from rondel.run.storage import checkpoint, locate
from run.small import DQN, PPO

EVERY = {"eval_every": 300, "eval_episodes": 3}
CLOCK = ("seconds", "steps_per_second")
CUT = {"plan": "actor*2 | learner", "block": 4}


def rows(folder: Path, evaluated: bool = True) -> list[dict[str, Any]]:
    """What a run has measured, but for the clock; or without its evaluations."""
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    left_out = CLOCK if evaluated else (*CLOCK, "eval_return", "eval_length")
    return [{k: v for k, v in row.items() if k not in left_out} for row in found]


def evaluations(folder: Path) -> dict[int, tuple[float, float]]:
    found = [row for row in rows(folder) if "eval_return" in row]
    return {row["steps"]: (row["eval_return"], row["eval_length"]) for row in found}


def assert_same_arrays(one: Path, other: Path) -> None:
    arrays = [checkpoint.read_arrays(locate.find_checkpoint(path), "") for path in (one, other)]
    assert arrays[0].keys() == arrays[1].keys()
    for name in arrays[0]:
        np.testing.assert_array_equal(arrays[0][name], arrays[1][name], name)


def train(out: Path, **asked: Any) -> Path:
    asked = {"steps": 1_500, "env": "CartPole-v1", "algorithm": "ppo"} | EVERY | asked
    small = PPO if asked["algorithm"] == "ppo" else DQN
    rondel.train(asked.pop("algorithm"), asked.pop("env"), out=out, **small | asked)
    return out


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("evaluated") / "run")


@pytest.mark.parametrize(
    "changes", [{}, {"algorithm": "dqn", "on": "threads", "lag": 1, **CUT}], ids=str
)
def test_a_run_has_the_same_numbers_with_and_without(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    one = train(tmp_path / "one", **changes)
    other = train(tmp_path / "other", eval_every=0, **changes)
    assert evaluations(one)
    assert not evaluations(other)
    assert rows(one, evaluated=False) == rows(other)
    assert_same_arrays(one, other)


def test_it_is_the_evaluation_of_that_very_round(evaluated: Path, tmp_path: Path) -> None:
    found = evaluations(evaluated)
    every = [row["steps"] for row in rows(evaluated)]
    firsts = [next(steps for steps in every if steps >= 300 * n) for n in range(1, 6)]
    assert list(found) == firsts
    there = train(tmp_path / "there", steps=300)
    for seed, equal in ((0, True), (1, False)):  # keyed by the seed of the run, apart from it
        played = rondel.evaluate(there, episodes=3, seed=seed)
        assert ((played.mean, played.lengths.mean()) == found[firsts[0]]) == equal


def test_stopped_and_resumed_it_is_as_if_it_went_through(evaluated: Path, tmp_path: Path) -> None:
    train(tmp_path / "run", steps=700)
    rondel.resume(tmp_path / "run", steps=1_500)
    assert rows(tmp_path / "run") == rows(evaluated)
    assert_same_arrays(tmp_path / "run", evaluated)
    rondel.resume(tmp_path / "run", steps=2_000, eval_every=0)
    assert max(evaluations(tmp_path / "run")) < 2_000 - 300


@pytest.mark.parametrize(
    "on",
    [
        pytest.param("inline", marks=pytest.mark.long),
        "threads",
        pytest.param("processes", marks=pytest.mark.long),
    ],
)
def test_a_cut_plan_has_the_same_evaluations(on: str, evaluated: Path, tmp_path: Path) -> None:
    cut, whole = train(tmp_path / "cut", on=on, **CUT), train(tmp_path / "whole", block=4)
    assert rows(cut) == rows(whole)
    assert evaluations(cut).keys() == evaluations(evaluated).keys()


@pytest.mark.long
@pytest.mark.parametrize("env", ["CartPole-v1", "gymnasium:CartPole-v1"])
def test_each_of_several_seeds_has_its_own(env: str, tmp_path: Path) -> None:
    train(tmp_path / "several", env=env, seeds=3)
    train(tmp_path / "one", env=env, seed=1)
    assert rows(tmp_path / "several" / "seed-1") == rows(tmp_path / "one")
    assert len({str(evaluations(tmp_path / "several" / f"seed-{i}")) for i in range(3)}) == 3


def test_curves_have_them_beside_the_returns_of_training(evaluated: Path, tmp_path: Path) -> None:
    (group,) = compare(evaluated).tasks["CartPole-v1"]
    curve, found = group.curves[0].evaluations, evaluations(evaluated)
    assert curve is not None
    assert (curve.steps == list(found)).all()
    assert (curve.returns == [played for played, _ in found.values()]).all()
    plain = compare(train(tmp_path / "run", eval_every=0, seed=1)).tasks["CartPole-v1"]
    assert plain[0].curves[0].evaluations is None
    rondel.plot([evaluated, tmp_path / "run"], tmp_path / "both.png")


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"eval_every": -1}, "eval_every must be an integer from 0 to 2.* got -1"),
        ({"eval_every": 0.5}, "eval_every must be an integer"),
        ({"eval_every": True}, "eval_every must be an integer"),
        ({"eval_episodes": -1}, "eval_episodes must be an integer from 0 .* got -1"),
        ({"eval_episodes": 0}, "eval_every=300 needs eval_episodes of 1 or more, got 0"),
    ],
)
def test_values_that_can_not_be_get_a_sentence(
    asked: dict[str, Any], sentence: str, evaluated: Path, tmp_path: Path
) -> None:
    with pytest.raises(RondelError, match=sentence):
        train(tmp_path / "run", **asked)
    assert not (tmp_path / "run").exists()
    with pytest.raises(RondelError, match=sentence):
        rondel.resume(evaluated, **EVERY | asked)
