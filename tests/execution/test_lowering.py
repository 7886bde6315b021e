"""How plans become programs, devices and messages: one table."""

from __future__ import annotations

import pytest

from execution import toy
from execution.test_equality import ENV, SEED, task
from rondel.execution.backends import registry
from rondel.execution.backends.lowering import Form, Kind, Lowering, devices_for, lower
from rondel.plan.parser import parse
from rondel.plan.plan import Plan

IMPURE = ENV._replace(close=lambda state: None)  # traceable, with state outside of JAX
HOST = toy.host_twin(ENV, SEED)
SPREAD = "actor+memory | gradient*2 | update"


def lowered(plan: str | Plan, on: str = "inline", env: object = ENV, devices: int = 2) -> Lowering:
    plan = parse(plan) if isinstance(plan, str) else plan
    return lower(task("toy", env), plan, registry.find(on).in_driver, devices)


@pytest.mark.parametrize(
    ("plan", "on", "env", "devices", "kind"),
    [
        ("all", "inline", ENV, 1, Kind.FUSED),
        ("all", "processes", ENV, 1, Kind.FUSED),
        ("all", "inline", IMPURE, 1, Kind.FUSED),
        ("all", "inline", HOST, 1, Kind.ROUNDS),
        (parse("all", lag=1), "inline", ENV, 1, Kind.ROUNDS),
        ("all*2", "inline", ENV, 2, Kind.DATA_PARALLEL),
        ("all*2", "inline", ENV, 1, Kind.ROUNDS),
        ("all*2", "inline", IMPURE, 2, Kind.ROUNDS),
        ("all*2", "processes", ENV, 2, Kind.ROUNDS),
        (parse("all*2", lag=1), "inline", ENV, 2, Kind.ROUNDS),
        (SPREAD, "inline", ENV, 2, Kind.GRADIENT_PARALLEL),
        (SPREAD, "inline", HOST, 2, Kind.GRADIENT_PARALLEL),
        (SPREAD, "inline", ENV, 1, Kind.ROUNDS),
        ("env | policy | memory | gradient*2 | update", "inline", ENV, 2, Kind.ROUNDS),
        ("actor*2 | memory | gradient*2 | update", "inline", ENV, 2, Kind.ROUNDS),
        ("actor | learner", "inline", ENV, 2, Kind.ROUNDS),
        (parse("actor*2 | learner", free=True, lag=1), "threads", ENV, 2, Kind.ASYNC),
    ],
)
def test_which_plans_are_one_program(
    plan: str | Plan, on: str, env: object, devices: int, kind: Kind
) -> None:
    found = lowered(plan, on, env, devices)
    assert found.kind is kind
    assert found.devices == (2 if kind.value.endswith("parallel") else 1)
    assert found.one_program == (kind in (Kind.FUSED, Kind.DATA_PARALLEL))
    assert found.in_driver == (on == "inline")


@pytest.mark.parametrize(
    ("plan", "stackable"),
    [("all", True), ("all*2", False), ("actor | learner", False)],
)
def test_which_rings_of_several_seeds_are_one_program(plan: str, stackable: bool) -> None:
    assert lowered(plan).stackable == stackable
    assert not lowered(plan, "processes").stackable
    assert not lowered(plan, env=IMPURE).stackable


@pytest.mark.parametrize(
    ("plan", "env", "forms", "at_once"),
    [
        ("all", ENV, [[Form.CALL]], True),
        ("all", HOST, [[Form.STEP, Form.DRAWS]], True),
        ("actor*2 | learner", ENV, [[Form.ROLLOUT], [Form.DRAWS]], True),
        ("actor | learner*2", ENV, [[Form.ROLLOUT], [Form.DRAW]], False),
        (
            "actor*2 | memory | gradient+update",
            ENV,
            [[Form.ROLLOUT], [Form.DRAW], [Form.DRAW]],
            False,
        ),
        (SPREAD, ENV, [[Form.ROLLOUT, Form.DRAWS], [Form.DRAWS], [Form.DRAWS]], True),
    ],
)
def test_the_programs_of_each_piece(
    plan: str, env: object, forms: list[list[Form]], at_once: bool
) -> None:
    found = lowered(plan, env=env)
    assert [[one.form for one in piece] for piece in found.programs] == forms
    assert found.learns_in_one_program == at_once


def test_pieces_in_one_thread_take_turns() -> None:
    assert lowered("actor | learner").takes_turns
    assert not lowered("actor | learner", "threads").takes_turns
    assert not lowered("all").takes_turns
    assert not lowered(SPREAD).takes_turns


@pytest.mark.parametrize(
    ("plan", "devices"),
    [
        ("all", 1),
        ("all*3", 3),
        ("actor | memory | gradient*4 | update", 4),
        ("actor*2 | learner", 1),
    ],
)
def test_devices_that_a_plan_has_work_for(plan: str, devices: int) -> None:
    assert devices_for(parse(plan)) == devices
    assert devices_for(parse(plan, lag=1)) == 1
