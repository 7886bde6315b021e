"""Several seeds: each is the run that it would have been alone, wherever the others are."""

from __future__ import annotations

import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rondel
from rondel import RondelError
from rondel.algorithms import ppo
from rondel.cli import main
from rondel.execution.hostenv.seeds import Purpose
from rondel.execution.loop import seed_parallel
from rondel.execution.loop.sync_loop import NotFinite
from rondel.ops.random import purpose_key
from rondel.run.display.display import Lines
from rondel.run.storage import checkpoint, locate
from run.small import DQN, PPO, SMALL

SEEDS = (3, 4, 5)
FILES = {"config.json", "metrics.jsonl", "checkpoints", "curve.png", "live.json"}
FILES |= {"profile.json", "trace.json"}


def rows(folder: Path) -> list[dict[str, Any]]:
    """What a run has measured, but for the clock."""
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(("sec", "steps_"))} for row in found]


def arrays(folder: Path) -> dict[str, np.ndarray]:
    return checkpoint.read_arrays(locate.find_checkpoint(folder), "")


def assert_same(one: Path, other: Path) -> None:
    assert rows(one) == rows(other)
    for name, array in arrays(one).items():
        np.testing.assert_array_equal(array, arrays(other)[name], name)


def train(out: Path, **asked: Any) -> Any:
    asked = {"steps": 1_000, "seed": 3, "seeds": 3, "eval_episodes": 3} | PPO | asked
    return rondel.train("ppo", asked.pop("env", "CartPole-v1"), out=out, **asked)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("seeds") / "out"
    stream = io.StringIO()
    runs = train(out, display=Lines(stream), eval_episodes=0)
    return out, runs, stream.getvalue().splitlines()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The second seed by itself."""
    out = tmp_path_factory.mktemp("alone") / "out"
    train(out, seed=4, seeds=None, eval_episodes=0)
    return out


def test_a_folder_of_ordinary_runs(trained: Any) -> None:
    out, runs, _ = trained
    assert {p.name for p in out.iterdir()} == {"seed-3", "seed-4", "seed-5"}
    for run, seed in zip(runs, SEEDS, strict=True):
        assert run.path == out / f"seed-{seed}"
        assert {p.name for p in run.path.iterdir()} == FILES
        assert json.loads((run.path / "config.json").read_text())["seed"] == seed
        assert run.steps >= 1_000 > rows(run.path)[-2]["steps"]
    assert rondel.profile(out / "seed-4", stages=False).facts.plan == "all"
    (row,) = rondel.compare(out).rows("CartPole-v1")
    assert row.seeds == 3


def test_each_seed_is_the_run_that_it_would_have_been_alone(trained: Any, alone: Path) -> None:
    assert_same(trained[0] / "seed-4", alone)


def test_the_result_is_a_mean_with_its_interval(trained: Any) -> None:
    out, runs, _ = trained
    result = runs.result
    each = [run.result["return_mean"] for run in runs]
    assert len(set(each)) == 3
    assert result["return_mean"] == pytest.approx(np.mean(each))
    wide = 4.303 * np.std(each, ddof=1) / np.sqrt(3)  # Student's t of 2 degrees of freedom
    assert result["return_mean_high"] == pytest.approx(np.mean(each) + wide)
    assert result["return_mean_low"] == pytest.approx(np.mean(each) - wide)
    assert result["at_a_time"] == 3  # they share the machine, and so their speeds
    assert json.loads((out / "seed-4" / "config.json").read_text())["at_a_time"] == 3
    assert result["eval_return"] is None  # not asked for
    assert (result["seeds"], result["path"], len(result["runs"])) == (3, str(out), 3)


@pytest.mark.long
def test_all_are_evaluated_at_their_end(tmp_path: Path) -> None:
    stream = io.StringIO()
    runs = train(tmp_path, steps=300, display=Lines(stream))
    each = [run.result["eval_return"] for run in runs]
    assert runs.result["eval_return"] == pytest.approx(np.mean(each))
    assert rondel.evaluate(tmp_path / "seed-4", episodes=3, seed=4).mean == each[1]
    assert "greedy, mean over seeds: " in stream.getvalue()


def test_a_log_has_a_line_for_each_seed_and_a_summary(trained: Any) -> None:
    lines = trained[2]
    assert "seeds      3, 4, 5, side by side in one program" in lines
    assert any(line.startswith("runs       all x 3 in this process: each ") for line in lines)
    for seed in SEEDS:
        assert any(line.startswith(f"seed {seed}: 1,") and "of 1k steps" in line for line in lines)
    assert lines[-3].startswith("return, mean over seeds: ")
    assert lines[-2].startswith("Done: 3 seeds in ")
    assert max(len(line) for line in lines if str(trained[0]) not in line) <= 80


@pytest.mark.long
def test_all_go_on_from_where_they_were_each_with_its_own_rounds(
    trained: Any, tmp_path: Path
) -> None:
    """Steps that only reset don't count, so seeds end after different numbers of rounds."""
    whole, _, _ = trained
    out = tmp_path / "out"
    train(out, steps=max(rows(run.path)[3]["steps"] for run in trained[1]), eval_episodes=0)
    rounds = {len(rows(out / f"seed-{seed}")) for seed in SEEDS}
    runs = rondel.resume(out, steps=1_000)
    assert len(rounds) > 1
    assert [run.steps for run in runs] == [run.steps for run in trained[1]]
    for seed in SEEDS:
        assert_same(out / f"seed-{seed}", whole / f"seed-{seed}")
    with pytest.raises(RondelError, match="already finished"):
        rondel.resume(out)
    with pytest.raises(RondelError, match=r"folder of runs. Use one of them, such as .*seed-3"):
        rondel.evaluate(out)


@pytest.mark.long
def test_a_seed_that_is_solved_ends_there_and_others_go_on(tmp_path: Path) -> None:
    # these seeds come to 15 after different numbers of rounds
    runs = train(tmp_path / "out", steps=5_000, until_return=15.0, eval_episodes=0)
    assert len({run.steps for run in runs}) > 1
    for run in runs:
        assert run.return_mean >= 15.0
        assert rows(run.path)[-1]["steps"] == run.steps
    train(tmp_path / "one", steps=5_000, until_return=15.0, seed=5, seeds=None, eval_episodes=0)
    assert_same(tmp_path / "out" / "seed-5", tmp_path / "one")


@pytest.mark.long
def test_ctrl_c_keeps_all_of_them(trained: Any, tmp_path: Path) -> None:
    def interrupt(run: Any, report: Any) -> None:
        assert run.ring.round == report.round + 1
        if report.round == 3 and run.setup.task.seed == 4:
            os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        train(out, hooks=interrupt)
    assert {checkpoint.read_meta(locate.find_checkpoint(p))["round"] for p in out.iterdir()} == {4}
    rondel.resume(out)
    for seed in SEEDS:
        assert_same(out / f"seed-{seed}", trained[0] / f"seed-{seed}")


@pytest.fixture
def stacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One program over a leading axis of seeds, as on accelerators."""
    rings = seed_parallel.SeedRings
    monkeypatch.setattr(
        seed_parallel, "SeedRings", lambda task, seeds, _: rings(task, seeds, stacked=True)
    )


@pytest.mark.long
@pytest.mark.usefixtures("stacked")
def test_stacked_seeds_agree_with_a_single_run_up_to_rounding(alone: Path, tmp_path: Path) -> None:
    """Sums in products of stacked matrices are rounded otherwise: some rounds later that shows."""
    runs = train(tmp_path / "out", steps=400)
    one, other = rows(tmp_path / "out" / "seed-4"), rows(alone)
    for row, like in zip(one[:3], other[:3], strict=True):
        assert row == pytest.approx(like, rel=1e-3, abs=1e-4)
    assert [len(rows(run.path)) for run in runs] == [run.ring.round for run in runs]
    assert all(run.steps >= 400 > rows(run.path)[-2]["steps"] for run in runs)


@pytest.mark.long
@pytest.mark.usefixtures("stacked")
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_stacked_seeds_that_go_on_are_those_that_never_stopped(
    tmp_path: Path, algorithm: str
) -> None:
    asked: dict[str, Any] = {"seeds": 2, "eval_episodes": 0} | SMALL[algorithm]
    rondel.train(algorithm, "CartPole-v1", steps=800, out=tmp_path / "whole", **asked)
    rondel.train(algorithm, "CartPole-v1", steps=400, out=tmp_path / "out", **asked)
    rondel.resume(tmp_path / "out", steps=800)
    for seed in range(2):
        assert_same(tmp_path / "out" / f"seed-{seed}", tmp_path / "whole" / f"seed-{seed}")


@pytest.mark.long
@pytest.mark.usefixtures("stacked")
def test_a_stacked_seed_that_has_ended_stays_what_it_was(tmp_path: Path) -> None:
    runs = train(tmp_path, steps=5_000, until_return=15.0, eval_episodes=0)
    assert len({run.steps for run in runs}) > 1  # so that some have waited for others
    for run in runs:
        assert run.return_mean >= 15.0
        assert rows(run.path)[-1]["steps"] == run.steps
        with rondel.load(run.path) as saved:
            jax.tree.map(np.testing.assert_array_equal, saved.state, run.state)


@pytest.mark.long
def test_a_callback_can_end_one_of_them(tmp_path: Path) -> None:
    def stop(run: Any, report: Any) -> bool:
        return report.round == 1 and run.setup.task.seed == 4

    runs = train(tmp_path / "out", steps=600, hooks=stop, eval_episodes=0)
    assert runs[1].ring.round == 2 < runs[0].ring.round


def poisoned(config: ppo.Config, spec: Any) -> Any:
    """PPO whose parameters are no numbers where the seed is 4."""
    inner = ppo.make(config, spec)

    def init(key: Any) -> Any:
        same = jax.random.key_data(key) == jax.random.key_data(purpose_key(4, Purpose.INIT))
        return jax.tree.map(
            lambda x: jnp.where(same.all(), jnp.nan, x) if x.dtype == jnp.float32 else x,
            inner.init(key),
        )

    return inner._replace(init=init)


@pytest.mark.long
def test_a_seed_whose_loss_is_no_number_does_not_end_the_others(tmp_path: Path) -> None:
    small = ppo.Config(rollout=16, epochs=1, minibatches=2, hidden=(8,))
    with pytest.raises(NotFinite, match=r"Seed 4: Training stopped in round 0.* other seeds fin"):
        rondel.train(
            poisoned,
            "CartPole-v1",
            **{"steps": 600, "seed": 3, "seeds": 3, "eval_episodes": 0, "config": small},
            out=tmp_path,
            lanes=8,
        )
    ends = [
        checkpoint.read_meta(locate.find_checkpoint(tmp_path / f"seed-{s}"))["steps"]
        for s in (3, 5)
    ]
    assert min(ends) >= 600
    assert not (tmp_path / "seed-4" / "checkpoints").exists()


@pytest.mark.long
def test_over_other_environments_they_come_one_after_another(tmp_path: Path) -> None:
    env = "gymnasium:CartPole-v1"

    def interrupt(run: Any, report: Any) -> None:
        if run.setup.task.seed == 4:
            os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        train(out, env=env, steps=300, hooks=interrupt, eval_episodes=0)
    assert not list((out / "seed-5").iterdir())  # it waits
    runs = rondel.resume(out)
    assert [run.steps >= 300 for run in runs] == [True] * 3
    train(tmp_path / "one", env=env, steps=300, seed=5, seeds=None, eval_episodes=0)
    assert_same(out / "seed-5", tmp_path / "one")


@pytest.mark.long
@pytest.mark.parametrize("on", ["threads", "processes"])
def test_over_a_backend_several_at_a_time(alone: Path, tmp_path: Path, on: str) -> None:
    train(tmp_path / "out", on=on, eval_episodes=0)
    assert_same(tmp_path / "out" / "seed-4", alone)


@pytest.mark.long
def test_a_replay_memory_side_by_side(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"steps": 600, "eval_episodes": 0} | DQN
    rondel.train("dqn", "CartPole-v1", seeds=2, out=tmp_path / "out", **asked)
    rondel.train("dqn", "CartPole-v1", seed=1, out=tmp_path / "one", **asked)
    assert_same(tmp_path / "out" / "seed-1", tmp_path / "one")


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"seeds": 0}, "seeds must be an integer from 1 to 1,000, got 0"),
        ({"seeds": 1.5}, "an integer"),
        ({"seeds": True}, "an integer"),
        ({"seeds": 10**9}, "from 1 to 1,000"),
        ({"seeds": 2, "seed": 2**32 - 1}, "from 1 to 1, got 2"),
    ],
)
def test_seeds_that_can_not_be(tmp_path: Path, asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RondelError, match=sentence):
        train(tmp_path / "out", **asked)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_taken(trained: Any, alone: Path, tmp_path: Path) -> None:
    with pytest.raises(RondelError, match="already holds the runs of several seeds"):
        train(trained[0])
    with pytest.raises(RondelError, match="already holds the runs of several seeds"):
        train(trained[0], seeds=None)
    with pytest.raises(RondelError, match="already holds a run"):
        train(alone)
    (tmp_path / "seed-9").mkdir()
    with pytest.raises(RondelError, match="has folders of other seeds: 9"):
        train(tmp_path)
    with pytest.raises(RondelError, match="holds no checkpoint"):
        rondel.resume(tmp_path)


@pytest.mark.long
def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = "--lanes 8 --rollout 16 --epochs 1 --minibatches 2 --hidden 8 --no-tuned".split()
    out = str(tmp_path / "out")
    asked = ["train", "ppo", "CartPole-v1", "--steps", "300", "--seed", "3", "--seeds", "3"]
    main.main([*asked, "--out", out, "--eval-episodes", "3", "--json", *small])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [run["seed"] for run in result["runs"]] == [3, 4, 5]
    main.main(["resume", out, "--steps", "400"])
    said = capsys.readouterr().out.splitlines()
    assert f"{'seeds':17} 3" in said
    assert not any(line.startswith("runs") for line in said)
    with pytest.raises(SystemExit):
        main.main([*asked, "--out", out, *small])
    assert f"Continue with `rondel resume {out}`" in capsys.readouterr().err
