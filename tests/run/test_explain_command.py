"""`rondel explain`: what it refuses, what it prints, and that nothing runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rondel
from rondel.cli import main
from rondel.errors import RondelError
from run.test_explain import DQN, dqn

FLAGS = [
    *("--lanes", "16", "--rollout", "4", "--updates", "3", "--batch", "16", "--capacity", "500"),
    *("--warmup", "0", "--hidden", "8", "--no-tuned"),
]


@pytest.mark.parametrize("command", ["explain", "train"])
@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--plan", "actor*3 | learner"], "actor*3 cannot share 16 lanes in blocks of 8 evenly"),
        (["--plan", "actor*2 | lerner"], "Did you mean learner?"),
        (["--plan", "all", "--free"], "--free gains nothing where one piece acts and updates"),
        (["--resources", "all:cpu=1"], "--on inline takes no resources."),
        (["--address", "here:1"], "--on inline joins no cluster, got"),
        (["--on", "proceses"], "got 'proceses'. Did you mean processes?"),
        (
            ["--plan", "actor | memory | gradient*3 | update"],
            "gradient*3 cannot share the 16 rows of a batch evenly. Use 1, 2, 4 or 8 copies, or "
            "batches of 15 or 18 rows.\n"
            "  actor | memory | gradient*3 | update\n"
            "                   ^^^^^^^^^^\n",
        ),
        (
            ["--plan", "actor | memory*2 | gradient*4 | update", "--batch", "18"],
            "gradient*4 cannot share the 18 rows of a batch evenly. Use 1, 2, 6 or 18 copies, or "
            "batches of 16 or 20 rows.",
        ),
        (
            ["--plan", "actor | memory*2 | gradient+update", "--batch", "15"],
            "batch must be a multiple of the 2 memory shards, got 15. Use 14 or 16.",
        ),
        (["--capacity", "1000000000000"], "Memory would take"),
    ],
)
def test_what_can_not_run_is_refused(
    command: str,
    flags: list[str],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = ["--out", str(tmp_path / "run")] if command == "train" else []
    with pytest.raises(SystemExit) as exit_:
        main.main([command, "dqn", "CartPole-v1", *FLAGS, *flags, *out])
    assert exit_.value.code == 2
    assert sentence in capsys.readouterr().err


def test_shards_are_refused_that_fit_one_by_one_only(monkeypatch: pytest.MonkeyPatch) -> None:
    one = dqn("actor | memory*2 | gradient+update").pieces[1].holds["memory"]
    assert one is not None
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 2 * one - 1}.get)
    for do in (rondel.explain, rondel.start):
        fields = DQN | {"plan": "actor | memory*2 | gradient+update"}
        with pytest.raises(RondelError, match="Memory would take"):
            do("dqn", "CartPole-v1", **fields)
        # a cluster may have several machines
    assert dqn("actor | memory*2 | gradient+update", on="ray").on == "ray"


def test_one_copy_of_each_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    from rondel.run.setup import prepare

    monkeypatch.setattr(prepare, "ShapeModel", None)
    fields = {k: v for k, v in DQN.items() if k != "tuned"}
    prepare.prepare("dqn", "CartPole-v1", fields=fields | {"plan": "actor*2 | learner"})
    with pytest.raises(TypeError):
        prepare.prepare("dqn", "CartPole-v1", fields=fields | {"plan": "actor | learner*2"})


# On the command line, where nothing runs.


def test_json_is_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["explain", "dqn", "CartPole-v1", *FLAGS, "--plan", "actor*2 | learner", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["plan"] == "actor*2 | learner"
    assert told["pieces"][0]["shares"][1] == {
        "name": "actor 2 of 2",
        "lanes": [[8, 15]],
        "rows": None,
    }
    assert told["messages"][0]["round_bytes"] == 16 * 164  # as above
    main.main(["explain", "dqn", "CartPole-v1", *FLAGS, "--plan", "actor*2 | learner"])
    assert capsys.readouterr().out == f"{dqn('actor*2 | learner')}\n"


@pytest.mark.parametrize(("flags", "free"), [([], True), (["--no-free"], False)])
def test_a_flag_goes_before_what_a_preset_says(
    flags: list[str], free: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = ["--lanes", "32", "--plan", "impala", "--json"]
    main.main(["explain", "dqn", "CartPole-v1", *FLAGS, *plan, *flags])
    told = json.loads(capsys.readouterr().out)
    assert (told["free"], told["lag"]) == (free, 1)


def test_help_has_the_flags_that_matter(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main.main(["explain", "dqn", "CartPole-v1", "--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert "without running it." in text
    for flag in ("plan", "lag", "free", "no-free", "on", "resources", "lanes", "json", "no-tuned"):
        assert f"--{flag}" in text
    assert "--steps INT" not in text


def test_flags_of_train_may_stay(capsys: pytest.CaptureFixture[str]) -> None:
    stay = ["--steps", "800", "--seed", "3", "--seeds", "2", "--out", "x", "--eval-episodes", "4"]
    stay += ["--until-return", "9", "--log", "tensorboard"]
    main.main(["explain", "dqn", "CartPole-v1", *FLAGS])
    plain = capsys.readouterr().out
    main.main(["explain", "dqn", "CartPole-v1", *FLAGS, *stay])
    assert capsys.readouterr().out == plain
    assert not Path("x").exists()


def test_nothing_runs() -> None:
    """No process is started, no worker made; JAX does not even look for a device."""
    code = f"""
import subprocess, os, sys
from jax._src import xla_bridge
from rondel.execution.backends.processes.fork_server import ForkServer
from rondel.execution.workers.stage_worker import StageWorker
from rondel.cli import main as cli
def fail(*args, **kwargs):
    raise AssertionError("it ran")
ForkServer.__init__ = StageWorker.__init__ = subprocess.Popen.__init__ = fail
os.fork = os.posix_spawn = fail
cli.main(["explain", "dqn", "CartPole-v1", *{FLAGS!r}, "--plan", "env*2 | policy | learner*2"])
print(len(xla_bridge._backends), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("dqn on jax:CartPole-v1, 16 lanes in blocks of 8\n")
    assert done.stderr.strip() == "0"
