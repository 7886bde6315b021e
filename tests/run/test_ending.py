"""What is said of a run at its end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import rondel
from rondel.execution.backends.protocol import Restarts
from rondel.run.preflight.render import ending
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
