"""The command line, as a person would use it."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rondel.algorithms import catalogue
from rondel.cli import main

SMALL = ["--lanes", "8", "--rollout", "16", "--epochs", "1", "--minibatches", "2", "--hidden", "8"]


def rondel(*args: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rondel", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_train_eval_and_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    main.main(
        ["train", "ppo", "CartPole-v1", "--steps", "500", "--out", str(folder), "--json", *SMALL]
    )
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert set(result) == {
        "algorithm",
        "env",
        "seed",
        "steps",
        "episodes",
        "return_mean",
        "eval_return",
        "steps_per_second",
        "seconds",
        "path",
    }
    assert (result["algorithm"], result["env"], result["seed"]) == ("ppo", "jax:CartPole-v1", 0)
    assert result["steps"] >= 500
    assert result["path"] == str(folder)
    assert "one fused XLA program" in err
    assert "jax:CartPole-v1" in err

    main.main(["eval", str(folder), "--episodes", "5", "--json"])
    played = json.loads(capsys.readouterr().out)
    assert played["episodes"] == 5

    main.main(["record", str(folder), str(tmp_path / "shown"), "--episodes", "2"])
    assert "mean_return" in capsys.readouterr().out
    assert (tmp_path / "shown").is_file()

    main.main(["resume", str(folder), "--steps", "900", "--json"])
    went_on = json.loads(capsys.readouterr().out)
    assert went_on["steps"] >= 900
    assert went_on["eval_return"] is not None  # as before
    main.main(["resume", str(folder), "--steps", "1200", "--eval-episodes", "0", "--json"])
    assert json.loads(capsys.readouterr().out)["eval_return"] is None


OWN = """
from rondel.algorithms import ppo
from rondel.algorithms.ppo import Config  # whose fields become flags

def halved(config, spec):
    return ppo.make(config, spec)
"""


def test_an_algorithm_of_ones_own_is_trained_resumed_and_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine_for_the_cli.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    own, path = "mine_for_the_cli:halved", str(tmp_path / "run")
    main.main(["train", own, "CartPole-v1", "--steps", "300", "--out", path, "--json", *SMALL])
    first = json.loads(capsys.readouterr().out)
    assert first["algorithm"] == own
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert (config["rollout"], config["minibatches"]) == (16, 2)
    for command in (["resume", path, "--steps", "600"], ["eval", path]):
        with pytest.raises(SystemExit, match="2"):
            main.main(command)
        assert "--algorithm" in capsys.readouterr().err
    main.main(["resume", path, "--steps", "600", "--algorithm", own, "--json"])
    assert json.loads(capsys.readouterr().out)["steps"] >= 600
    main.main(["eval", path, "--episodes", "2", "--algorithm", own, "--json"])
    assert json.loads(capsys.readouterr().out)["episodes"] == 2


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["list", "algorithms"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == list(catalogue.TABLE)
    assert {"ppo", "dqn", "sac", "alphazero"} <= set(listed)
    main.main(["list", "envs"])
    listed = capsys.readouterr().out.split()
    assert {"jax:CartPole-v1", "gymnasium:CartPole-v1", "probe:one"} <= set(listed)


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("mountaincar", lambda name: "MountainCar" in name),
        ("probe:*", lambda name: name.startswith("probe:")),
        ("jax:*-v[01]", lambda name: name.startswith("jax:") and name[-2:] in ("v0", "v1")),
    ],
)
def test_ids_are_found_by_a_part_or_a_pattern(
    pattern: str, fits: Callable[[str], bool], capsys: pytest.CaptureFixture[str]
) -> None:
    main.main(["list", "envs"])
    wanted = list(filter(fits, capsys.readouterr().out.split()))
    main.main(["list", "envs", pattern])
    assert capsys.readouterr().out.split() == wanted != []


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main.main([name, "--help"])
    text = capsys.readouterr().out
    assert text.startswith(f"usage: rondel {name} ")
    for field in dataclasses.fields(main.COMMANDS[name].options):
        assert field.name.replace("_", "-").removesuffix("s") in text.lower()  # paths: PATH...


def test_every_field_is_a_flag_with_its_comment(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main.main(["train", "ppo", "CartPole-v1", "--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    for flag in [
        "rollout",
        "epochs",
        "minibatches",
        "learning-rate",
        "discount",
        "gae-lambda",
        "clip",
        "value-cost",
        "entropy-cost",
        "max-grad-norm",
        "hidden",
        "lanes",
        "block",
        "steps",
        "seed",
        "out",
        "until-return",
        "json",
        "no-tuned",
    ]:
        assert f"--{flag}" in text
    assert "environments side by side" in text


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["train", "pppo", "CartPole-v1"], "Did you mean ppo"),
        (["train", "ppo", "CartPol-v1"], "CartPole-v1"),
        (["train", "dqn", "Pendulum-v1"], "discrete"),
        (["train", "ppo", "CartPole-v1", "--lanes", "0"], "1 or more"),
        (["train", "ppo", "CartPole-v1", "--learning-rat", "1"], "--learning-rate"),
        (
            ["train", "ppo", "CartPole-v1", "--gamma", "0.9"],
            "no option --gamma. Did you mean --disc",
        ),
        (["train", "ppo", "CartPole-v1", "--no-steps"], "There is no option --no-steps."),
        (["train", "ppo", "CartPole-v1", "-x"], "There is no option -x. `rondel train ppo Cart"),
        (
            ["train", "ppo", "CartPole-v1", "--learning-rate", "fast"],
            "must be a number, got 'fast'",
        ),
        (["train", "ppo", "CartPole-v1", "--steps", "x"], "--steps must be an integer, got 'x'."),
        (["train", "ppo", "CartPole-v1", "--steps", "1.5"], "must be an integer, got '1.5'."),
        (["train", "ppo", "CartPole-v1", "--seeds=1e999"], "must be an integer, got '1e999'."),
        (["train", "ppo", "CartPole-v1", "--hidden", "8", "x"], "--hidden can't be '8', 'x'."),
        (["train", "ppo", "CartPole-v1", "--steps"], "--steps needs a value."),
        (["train", "ppo", "CartPole-v1", "--out", "--json"], "--out needs a value."),
        (
            ["train", "ppo", "CartPole-v1", "--log", "csv"],
            "--log must be one of 'tensorboard', 'wandb', got 'csv'.",
        ),
        (["train", "ppo", "CartPole-v1", "--json=yes"], "takes no 'yes'"),
        (
            ["train", "ppo", "CartPole-v1", "--free", "3"],
            "`rondel train ppo CartPole-v1` takes no '3'",
        ),
        (["train", "sac", "Pendulum-v1", "--memory", "gru"], "There is no option --memory."),
        (["train"], "`rondel train` needs an algorithm and an environment"),
        (["train", "ppo"], "`rondel train ppo` needs an environment before any options"),
        (["explain", "ppo", "--lanes", "8"], "`rondel explain ppo` needs an environment"),
        (["fly"], "There is no command 'fly'. Use one of train,"),
        (["trian"], "Did you mean `rondel train`?"),
        (["eval", "x", "--epsiodes", "3"], "Did you mean --episodes?"),
        (["eval"], "`rondel eval` needs PATH."),
        (["record", "x"], "`rondel record` needs FILE."),
        (["plot"], "Name the folders of some runs"),
        (["envs"], "There is no command 'envs'. Use `rondel list envs`."),
        (
            ["list", "planets"],
            "must be one of 'algorithms', 'backends', 'worlds', 'envs', got 'planets'.",
        ),
        (["list", "envs", "pole", "car"], "takes no 'car'"),
        (["list", "algorithms", "pole"], "takes no pattern"),
        (["list", "envs", "planets"], "matches 'planets'. Use a part of an id"),
        (["eval", "nowhere"], "no such folder"),
        (["resume", "nowhere"], "no such folder"),
        (["record", "nowhere", "file"], "no such folder"),
        (["profile", "nowhere"], "no such folder. Use the folder of a run"),
    ],
)
def test_bad_input_gets_a_sentence_and_status_2(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main.main(argv)
    assert exit_.value.code == 2
    out, err = capsys.readouterr()
    assert sentence in err
    assert err.startswith("rondel: ")
    assert out == ""


@pytest.mark.parametrize("steps", ["1e5", "1e+5", "100_000"])
def test_a_whole_number_may_have_an_exponent(
    steps: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}

    def train(*_: Any, **more: Any) -> Any:
        asked.update(more)
        return SimpleNamespace(result={})

    monkeypatch.setattr("rondel.train", train, raising=False)
    main.main(
        ["train", "ppo", "CartPole-v1", "--steps", steps, "--out", "1e5", "--hidden", "1e1", "64"]
    )
    assert (asked["steps"], asked["hidden"], asked["out"]) == (100_000, (10, 64), "1e5")


def test_help_shows_plain_types_and_no_default_of_none(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (
        ["resume"],
        ["train", "ppo", "CartPole-v1"],
        ["plot"],
        ["train", "alphazero", "x"],
    ):
        with pytest.raises(SystemExit, match="0"):
            main.main([*argv, "--help"])
        text = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert "{None}" not in text
        assert "(default: None)" not in text
        assert "(default: )" not in text
    assert "--block INT" in text


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_checkpoint_and_says_how_to_go_on(
    signum: signal.Signals, status: int, tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "-m",
        "rondel",
        "train",
        "ppo",
        "CartPole-v1",
        "--steps",
        "100000000",
        "--out",
        str(tmp_path / "run"),
        *SMALL,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.stat().st_size):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signum)
    _, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert f"rondel resume {tmp_path / 'run'}" in err
    assert (tmp_path / "run" / "checkpoints" / "000001").is_dir()


def test_an_env_that_raises_shows_the_users_traceback(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import gymnasium, numpy\n"
        "class Broken(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (2,))\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    n = 0\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return numpy.zeros(2, 'float32'), {}\n"
        "    def step(self, action):\n"
        "        self.n += 1\n"
        "        if self.n > 30: self.break_the_spring()\n"
        "        return numpy.zeros(2, 'float32'), 0.0, False, False, {}\n"
        "    def break_the_spring(self):\n"
        "        raise ZeroDivisionError('the spring broke')\n"
        "gymnasium.register('Broken-v0', Broken)\n"
    )
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [
        sys.executable,
        "-m",
        "rondel",
        "train",
        "ppo",
        "gymnasium:mine:Broken-v0",
        "--out",
        str(tmp_path / "run"),
        *SMALL,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, env=env, timeout=240, check=False
    )
    assert done.returncode == 2
    assert "in break_the_spring" in done.stderr
    assert "the spring broke" in done.stderr
    assert done.stderr.strip().splitlines()[-1].startswith("rondel: ")


@pytest.mark.parametrize("more", [[], ["--seeds", "2"]])
def test_an_env_that_leaves_the_process_is_no_success(more: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import gymnasium, os\n"
        "class Leaving(gymnasium.Wrapper):\n"
        "    steps = 0\n"
        "    def step(self, action):\n"
        "        Leaving.steps += 1\n"
        "        if Leaving.steps > 900: os._exit(0)\n"
        "        return super().step(action)\n"
        "def make(): return Leaving(gymnasium.make('CartPole-v1'))\n"
    )
    command = [sys.executable, "-m", "rondel", "train", "ppo", "mine:make", *SMALL, *more]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        timeout=240,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("rondel: os._exit was called in this")


def test_help_and_version() -> None:
    text = rondel("--help").stdout
    for command in main.COMMANDS.values():
        assert f"rondel {command.name} {command.usage} " in text
        assert command.options.__doc__.partition("\n")[0] in text
    assert max(map(len, text.splitlines())) <= 100
    assert rondel("--version").stdout.strip() == "0.1.0"


@pytest.mark.parametrize("argv", [["--help"], ["eval", "--help"], ["list", "algorithms"]])
def test_who_reads_no_further_hears_no_more(argv: list[str]) -> None:
    reads, writes = os.pipe()
    os.close(reads)  # as `head` does when it has enough
    command = [sys.executable, "-m", "rondel", *argv]
    done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, timeout=240, check=False)
    os.close(writes)
    assert done.stderr == b""
    assert done.returncode == 141


@pytest.mark.parametrize(
    ("flags", "answer"), [(["--json"], '{"steps": 3}\n'), ([], "steps             3\n")]
)
def test_the_answer_is_all_that_stdout_holds(
    flags: list[str],
    answer: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever prints: Python, a descriptor, C that writes late, another process."""

    def train(*_: Any, **__: Any) -> Any:
        print("of Python")
        print("of Python's own", file=sys.__stdout__)
        os.write(1, b"of a descriptor\n")
        ctypes.CDLL(None).printf(b"of C\n")
        subprocess.run(["/bin/sh", "-c", "echo of another"], check=True)
        return SimpleNamespace(result={"steps": 3})

    monkeypatch.setattr("rondel.train", train, raising=False)
    with open(1, "w", closefd=False) as own:
        monkeypatch.setattr(sys, "__stdout__", own)
        main.main(["train", "ppo", "CartPole-v1", *flags])
    ctypes.CDLL(None).fflush(None)
    out, err = capfd.readouterr()
    assert out == answer
    whos = ("Python", "Python's own", "a descriptor", "C", "another")
    assert all(f"of {who}\n" in err for who in whos)
    os.write(1, b"as before")
    assert capfd.readouterr().out == "as before"
