"""Other plans for a run: flags that it accepts as they stand."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from rondel.plan.parser import parse
from rondel.run.profiling.plan_alternatives import alternative
from rondel.run.setup import jax_process
from rondel.run.setup.prepare import Setup, prepare

PURPOSES = (
    *("more actors", "no cuts", "fewer cuts", "several cores", "one program", "lag", "free"),
)
ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("ppo", "gymnasium:CartPole-v1", {"lanes": 8}),
    ("ppo", "gymnasium:CartPole-v1", {"lanes": 7}),
    ("ppo", "gymnasium:CartPole-v1", {"lanes": 16, "plan": "env*2 | policy+learner"}),
    ("dqn", "CartPole-v1", {"plan": "actor*2 | memory | gradient+update", "lag": 1, "block": 4}),
    ("impala", "CartPole-v1", {"plan": "actor*2 | learner", "lanes": 16}),
    ("qtopt", "Pendulum-v1", {}),
    ("r2d2", "CartPole-v1", {"plan": "actor*4 | memory*2 | gradient+update", "lanes": 32}),
    ("ppo", "CartPole-v1", {"plan": "all*2", "lanes": 16}),
    ("impala", "CartPole-v1", {"plan": "actor*2 | learner", "lanes": 16, "lag": 1, "free": True}),
]


def found(setup: Setup) -> dict[str, str]:
    """All that there is for a run, by purpose."""
    every = {purpose: alternative(setup, purpose) for purpose in PURPOSES}
    return {purpose: flags for purpose, flags in every.items() if flags}


def fields_of(flags: str) -> dict[str, Any]:
    """What a command line with these flags sets."""
    values = {r"--no-free\b": "--free ''", r"--free(?! '')\b": "--free 1"}
    for flag, given in values.items():
        flags = re.sub(flag, given, flags)
    words = shlex.split(flags)
    kinds = {"block": int, "lag": int, "free": bool}
    pairs = zip((word.removeprefix("--") for word in words[::2]), words[1::2], strict=True)
    return {name: kinds.get(name, str)(value) for name, value in pairs}


@pytest.mark.parametrize(("algorithm", "env", "fields"), ASKED)
@pytest.mark.parametrize("cores", [1, 2, 16])
def test_a_run_accepts_what_it_is_advised(
    algorithm: str, env: str, fields: dict[str, Any], cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax_process, "cores", lambda: cores)
    for purpose, flags in found(prepare(algorithm, env, fields=fields)).items():
        changed = fields_of(flags)
        setup = prepare(algorithm, env, fields=fields | changed)  # it refuses what can't be
        if purpose == "more actors":
            assert parse(changed["plan"]).copies("env") <= cores
        if purpose == "no cuts":
            assert (str(setup.plan), setup.plan.lag, setup.plan.free) == ("all", 0, False)


def test_a_run_of_few_lanes_is_offered_smaller_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_process, "cores", lambda: 4)
    eight = prepare("ppo", "gymnasium:Acrobot-v1", fields={"lanes": 8})
    wanted = '--plan "actor*4 | learner" --block 2 --on processes'
    assert alternative(eight, "more actors") == wanted
    seven = prepare("ppo", "gymnasium:Acrobot-v1", fields={"lanes": 7})
    assert not alternative(seven, "more actors")


def test_a_plan_with_a_range_is_left_as_it_is() -> None:
    fields = {"lanes": 16, "plan": "actor*1..4 | learner", "on": "ray", "free": True, "lag": 1}
    assert not found(prepare("impala", "gymnasium:CartPole-v1", fields=fields))


@pytest.mark.parametrize(
    ("env", "fields", "flags"),
    [
        ("CartPole-v1", {"lanes": 64}, '--plan "all*2" --on inline'),
        ("CartPole-v1", {"lanes": 8}, '--plan "all*2" --block 4 --on inline'),
        ("gymnasium:CartPole-v1", {}, '--plan "actor+memory | gradient*2 | update" --on inline'),
        ("CartPole-v1", {"lanes": 7}, ""),
        ("CartPole-v1", {"lanes": 64, "plan": "all*2", "on": "inline"}, ""),
    ],
)
def test_a_run_on_one_core_is_offered_others(
    env: str, fields: dict[str, Any], flags: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax_process, "cores", lambda: 2)
    assert alternative(prepare("ppo", env, fields=fields), "several cores") == flags


GRADIENTS = {"plan": "actor+memory | gradient*2 | update"}


@pytest.mark.parametrize(
    ("env", "fields", "cores", "offered"),
    [
        ("CartPole-v1", {"lanes": 64, "plan": "all*2", "on": "processes"}, 2, True),
        ("CartPole-v1", {"lanes": 64, "plan": "all*2", "on": "threads"}, 2, True),
        ("CartPole-v1", {"lanes": 64, "plan": "all*2", "on": "inline"}, 2, False),  # it is
        ("CartPole-v1", {"lanes": 64, "plan": "all*2", "on": "processes"}, 1, False),
        ("gymnasium:CartPole-v1", {"lanes": 16, "plan": "all*2"}, 2, False),  # not in one program
        ("gymnasium:CartPole-v1", GRADIENTS, 2, True),
        ("CartPole-v1", GRADIENTS, 2, True),
        ("CartPole-v1", {"plan": "actor*2 | learner", "lanes": 16}, 2, False),
    ],
)
def test_copies_that_could_be_one_program_are_offered_that(
    env: str, fields: dict[str, Any], cores: int, offered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax_process, "cores", lambda: cores)
    flags = alternative(prepare("ppo", env, fields=fields), "one program")
    assert flags == ("--on inline" if offered else "")
