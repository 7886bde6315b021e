"""What a run could do otherwise: it is offered nothing that it would be refused."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from rondel.plan.parser import parse
from rondel.run.profiling import plan_alternatives
from rondel.run.setup import jax_process
from rondel.run.setup.prepare import prepare

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


@pytest.mark.parametrize(("algorithm", "env", "fields"), ASKED)
@pytest.mark.parametrize("cores", [1, 2, 16])
def test_a_run_takes_what_it_is_advised(
    algorithm: str, env: str, fields: dict[str, Any], cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax_process, "cores", lambda: cores)
    found = plan_alternatives.facts_of(prepare(algorithm, env, fields=fields), fused=False).remedies
    for name, flags in found.items():
        flags, _, gone = flags.partition(" without ")
        asked = shlex.split(flags.replace("--free", "--free 1"))
        more = dict(zip([word.removeprefix("--") for word in asked[::2]], asked[1::2], strict=True))
        kinds = {"block": int, "lag": int, "free": bool}
        changed = {key: kinds.get(key, str)(value) for key, value in more.items()}
        if "plan" in changed and name == "whole":
            fields = {k: v for k, v in fields.items() if f"--{k}" not in gone and k != "on"}
            assert not {"lag", "free"} & set(fields)
        prepare(algorithm, env, fields=fields | changed)  # it would refuse what can't be
        if name == "actors":
            assert parse(changed["plan"]).copies("env") <= cores


def test_a_run_of_few_lanes_is_offered_smaller_blocks() -> None:
    eight = prepare("ppo", "gymnasium:Acrobot-v1", fields={"lanes": 8})
    found = plan_alternatives.facts_of(eight, fused=False).remedies
    assert found["sleepers"] == '--plan "actor*4 | learner" --block 2 --on processes'
    seven = prepare("ppo", "gymnasium:Acrobot-v1", fields={"lanes": 7})
    assert "sleepers" not in plan_alternatives.facts_of(seven, fused=False).remedies


@pytest.mark.parametrize(
    ("env", "fields", "flags"),
    [
        ("CartPole-v1", {"lanes": 64}, '--plan "all*2" --on inline'),
        ("CartPole-v1", {"lanes": 8}, '--plan "all*2" --block 4 --on inline'),
        ("gymnasium:CartPole-v1", {}, '--plan "actor+memory | gradient*2 | update" --on inline'),
        ("CartPole-v1", {"lanes": 7}, None),
        ("CartPole-v1", {"lanes": 64, "plan": "all*2", "on": "inline"}, None),
    ],
)
def test_a_run_on_one_core_is_offered_others(
    env: str, fields: dict[str, Any], flags: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax_process, "cores", lambda: 2)
    found = plan_alternatives.facts_of(prepare("ppo", env, fields=fields), fused=False).remedies
    assert found.get("cores") == flags


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
    found = plan_alternatives.facts_of(prepare("ppo", env, fields=fields), fused=False).remedies
    assert found.get("devices") == ("--on inline" if offered else None)
