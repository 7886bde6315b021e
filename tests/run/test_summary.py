"""What is said before a run and after it."""

from types import SimpleNamespace
from typing import Any

import pytest

from rondel.plan import parse
from rondel.plan.pointing import counted
from rondel.run import cli, summary
from rondel.run.clock import Clock


def test_one_is_not_many() -> None:
    assert counted(0, "round") == "0 rounds"
    assert counted(1, "copy", "copies") == "1 copy"
    assert counted(2, "copy", "copies") == "2 copies"
    assert summary.lag_rule(parse("impala")) == ", free, weights at most 1 round old"
    assert summary.lag_rule(parse("actor | learner", lag=2)) == ", weights 2 rounds old"


def test_a_speed_that_is_not_known_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """A run of one call was compiled in it, and there is no other to measure."""
    setup = SimpleNamespace(name="ppo", env_id="jax:x", task=SimpleNamespace(seed=0))
    run: Any = SimpleNamespace(steps=128, episodes=0, return_mean=None, path="there", setup=setup)
    clock = Clock(run, began=0.0)
    clock.tick()
    result = clock.result(None)
    assert result["steps_per_second"] is None
    cli._say(result, as_json=False)
    told = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert told == ["algorithm", "env", "seed", "steps", "episodes", "seconds", "path"]
