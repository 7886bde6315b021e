"""What a run does at its end besides saving."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rondel
from rondel.run.preflight.memory_estimate import MemoryEstimate
from rondel.run.profiling import profile
from rondel.run.training import train_loop
from run.made_up import APART, FUSED, made_up
from run.small import PPO

WHOLE = {"traced": True, "fused": True, "starting": 1.0, "rounds": 1000}
LONG = made_up(FUSED, seconds=100.0, **WHOLE)  # it would take 3 * 1 s and 60 rounds of 0.1 s
LONGER = made_up(FUSED, seconds=1_000.0, **WHOLE | {"rounds": 10_000})
ROOM: Any = (MemoryEstimate((), 1, 100), 10_000)


def run_of(algorithm: str) -> Any:
    setup = SimpleNamespace(name=algorithm, config=None, env_id="jax:CartPole-v1")
    return SimpleNamespace(setup=setup)


@pytest.mark.parametrize(
    ("seen", "room", "measures"),
    [
        (LONGER, ROOM, True),
        (LONG, ROOM, False),  # it would take more than a twentieth of it
        (LONGER, None, False),  # nobody looks on
        (LONGER, (ROOM[0], 200), False),  # there is no room for it twice more
        (made_up(FUSED, apart=APART, seconds=1_000.0, **WHOLE), ROOM, False),  # it was
    ],
)
def test_stages_are_measured_at_the_end_where_that_takes_little(
    seen: Any, room: Any, measures: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    better, said = made_up(FUSED, apart=APART), list[str]()
    monkeypatch.setattr(profile, "measured", lambda found, folder, **parts: better)
    found = train_loop._apart(seen, run_of("ppo"), Path("run"), room, said.append)
    assert found is (better if measures else seen)
    assert len(said) == measures


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_run_at_its_end_does_not_fail_for_that(
    error: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **parts: Any) -> None:
        raise error

    monkeypatch.setattr(profile, "measured", fail)
    assert train_loop._apart(LONGER, run_of("ppo"), Path("run"), ROOM, print) is LONGER


def test_an_algorithm_of_ones_own_is_not_measured_in_vain() -> None:
    said = list[str]()
    assert train_loop._apart(LONGER, run_of("mine"), Path("run"), ROOM, said.append) is LONGER
    assert not said


@pytest.mark.parametrize("seeds", [None, 2])
def test_a_run_that_others_run_beside_is_not_measured(
    seeds: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be timed with their work, nobody is shown it, and Ctrl-C is for all of them."""
    measured: list[Any] = []
    monkeypatch.setattr(train_loop, "_apart", lambda seen, *_: measured.append(seen) or seen)
    asked = PPO | {"plan": "actor | learner", "on": "threads", "eval_episodes": 0, "steps": 300}
    rondel.train("ppo", "CartPole-v1", out=tmp_path / "out", seeds=seeds, **asked)
    assert len(measured) == (seeds is None)
