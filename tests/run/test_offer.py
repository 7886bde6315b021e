"""What is offered in place of a damaged checkpoint can be taken as it stands."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import rondel
from rondel.cli import main
from rondel.run.storage import locate
from rondel.run.storage.locate import MEMORY, META, STATE
from rondel.run.training import resume_hint
from run.small import DQN, PPO

pytestmark = pytest.mark.fault


def twice(path: Path, first: dict[str, Any], second: dict[str, Any]) -> Path:
    """A run that reached its end and was given another one -> its newest checkpoint."""
    rondel.train("ppo", "CartPole-v1", out=path, eval_episodes=0, **first, **PPO)
    rondel.resume(path, eval_episodes=0, **second)
    return locate.find_checkpoint(path)


def damage(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def offered(capsys: Any, *asked: str) -> list[str]:
    """The arguments of the command that is offered where one was refused for damage."""
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        main.main(["resume", *asked])
    said = capsys.readouterr().err
    assert "is damaged" in said
    _, *words = shlex.split(said.strip().splitlines()[-1].rpartition(": ")[2])
    return words


@pytest.mark.parametrize("file", [STATE, META])
@pytest.mark.parametrize(("flags", "steps"), [((), 600), (("--steps", "900"), 900)])
def test_the_steps_that_were_asked_for(
    file: str, flags: tuple[str, ...], steps: int, tmp_path: Path, capsys: Any
) -> None:
    """The older checkpoint is at the end of what it was asked for; the run is not."""
    path = tmp_path / "a run"
    damage(twice(path, {"steps": 300}, {"steps": 600}) / file)
    words = offered(capsys, str(path), *flags)
    assert words == ["resume", f"{path}/checkpoints/000001", "--steps", str(steps)]
    main.main([*words, "--json"])
    assert json.loads(capsys.readouterr().out)["steps"] >= steps


def test_a_goal_that_was_given_up(tmp_path: Path, capsys: Any) -> None:
    path, none = tmp_path / "run", float("inf")
    more = {"until_return": none, "steps": 3_000}
    damage(twice(path, {"steps": 9_000, "until_return": 1.0}, more) / STATE)
    words = offered(capsys, str(path))
    assert words[2:] == ["--steps", "3000", "--until-return", "inf"]
    main.main([*words, "--json"])
    assert json.loads(capsys.readouterr().out)["steps"] >= 3_000


def test_a_run_of_which_nothing_else_is_known_can_go_on(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "run"
    damage(twice(path, {"steps": 300}, {"steps": 600}) / META)
    (path / "config.json").unlink()
    words = offered(capsys, str(path))
    main.main([*words, "--json"])
    assert json.loads(capsys.readouterr().out)["steps"] >= int(words[-1]) > 300


def test_all_else_that_was_asked_for_is_offered_too(tmp_path: Path) -> None:
    asked = {"env": "mine:Env-v0", "network": lambda: None, "free": False, "on": "threads"}
    asked |= {"plan": "actor | learner", "log": ("wandb",), "restarts": 3, "lag": None}
    asked |= {"eval_episodes": 0}
    twice(tmp_path, {"steps": 300}, {"steps": 600})
    good = tmp_path / "checkpoints" / "000001"
    assert shlex.split(resume_hint.resume_hint(good, asked)) == [
        *("rondel", "resume", str(good), "--steps", "600", "--eval-episodes", "0"),
        *("--env", "mine:Env-v0"),
        *("--log", "wandb", "--plan", "actor | learner", "--no-free", "--on", "threads"),
        *("--restarts", "3"),
    ]


def test_what_only_plays_needs_no_memory(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "run"
    rondel.train("dqn", "CartPole-v1", steps=300, out=path, eval_episodes=0, **DQN)
    wanted = rondel.evaluate(path, episodes=3).mean
    damage(locate.find_checkpoint(path) / MEMORY)
    main.main(["eval", str(path), "--episodes", "3", "--json"])
    assert json.loads(capsys.readouterr().out)["eval_return"] == wanted
    with pytest.raises(rondel.RondelError, match=f"{MEMORY} is damaged"):
        rondel.load(path)
