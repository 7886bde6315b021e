"""What is said of a run at its end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from rondel.execution.backend import Restarts
from rondel.run.summary import ending


@pytest.mark.parametrize(
    ("restarts", "said"),
    [
        (Restarts(), "Done: 300 steps in 9.0 s.\nCheckpoint: there"),
        (
            Restarts(10, 4.25),
            "Done: 300 steps in 9.0 s. Copies that died or hung were started again 10 times, which "
            "took 4.2 s of it.\nCheckpoint: there",
        ),
    ],
)
def test_restarts_are_counted(restarts: Restarts, said: str) -> None:
    backend = SimpleNamespace(restarts=lambda: restarts)
    result = {"steps": 300, "seconds": 9.0, "eval_return": None}
    run = SimpleNamespace(result=result, ring=SimpleNamespace(backend=backend))
    assert ending(run, Path("there")) == said
