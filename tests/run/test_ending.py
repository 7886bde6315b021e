"""What is said of a run at its end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rondel
from rondel.execution.backends.protocol import Restarts
from rondel.run.preflight.render import ending
from rondel.run.setup.prepare import prepare
from rondel.run.training.train_loop import resume_command
from run.small import PPO


@pytest.mark.parametrize(
    ("restarts", "said"),
    [
        (Restarts(), "Done: 300 steps in 9.0 s.\nCheckpoint: there"),
        (
            Restarts(10, 4.25),
            "Done: 300 steps in 9.0 s.\nCopies that died or hung were restarted 10 times "
            "(4.2 s).\nCheckpoint: there",
        ),
    ],
)
def test_restarts_are_counted(restarts: Restarts, said: str) -> None:
    backend = SimpleNamespace(restarts=lambda: restarts)
    result = {"steps": 300, "seconds": 9.0, "eval_return": None}
    run = SimpleNamespace(result=result, ring=SimpleNamespace(backend=backend))
    assert ending(run, Path("there")) == said


def test_restarts_are_the_same_number_wherever_they_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A profile begins when all is compiled: what was before counts, but is none of its time."""
    with rondel.start("ppo", "CartPole-v1", steps=2_000, **PPO) as run:
        monkeypatch.setattr(run.ring.backend, "restarts", lambda: Restarts(3, 1_000.0))
        for _ in run:
            pass
        monkeypatch.setattr(run.ring.backend, "restarts", lambda: Restarts(5, 1_000.0))
        seen = rondel.profile(run)
        assert run.ring.base is not None
        assert run.ring.base.restarts.times == 3
        assert (seen.restarts, seen.lost) == (5, 0.0)


def test_the_command_that_continues_a_run_names_what_is_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`walks` is a module of the user's; its own algorithm is PG under another name."""
    (tmp_path / "walks.py").write_text(
        "from rondel.algorithms.pg import Config, make as mine\n"
        "from rondel.envs.jax.classic.cartpole import make as _make\n"
        "from rondel.nets.torso import make_torso\n"
        "def Walk():\n"
        "    env = _make()\n"
        "    return env._replace(spec=env.spec._replace(id='own:Walk'))\n"
        "def torso(space):\n"
        "    return make_torso('mlp', space, (8,))[0]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def command(algorithm: str, env: str, *log: str, **fields: Any) -> str:
        setup = prepare(algorithm, env, fields={"lanes": 2, "rollout": 8} | fields)
        return resume_command(setup, Path("here"), log)

    assert command("ppo", "CartPole-v1") == "`rondel resume here`"
    assert command("ppo", "CartPole-v1", "wandb") == "`rondel resume here --log wandb`"
    own = command("walks:mine", "walks:Walk", network="walks:torso")
    again = "--algorithm walks:mine --env walks:Walk --network walks:torso"
    assert own == f"`rondel resume here {again}`"
