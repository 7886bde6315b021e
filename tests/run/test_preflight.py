"""What is said before a run and after it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rondel.cli import command
from rondel.execution.backends.lowering import Kind, Lowering
from rondel.execution.loop.rounds import Report
from rondel.execution.loop.sync_loop import Limits
from rondel.formatting import plural
from rondel.plan.parser import parse
from rondel.run.preflight import render
from rondel.run.setup.shape_model import MemoryEstimate, PieceMemory
from rondel.run.training import hooks
from rondel.run.training.hooks import Throughput


def test_one_is_not_many() -> None:
    assert plural(0, "round") == "0 rounds"
    assert plural(1, "copy", "copies") == "1 copy"
    assert plural(2, "copy", "copies") == "2 copies"
    assert render.lag_rule(parse("impala")) == ", free, weights at most 1 round old"
    assert render.lag_rule(parse("actor | learner", lag=2)) == ", weights 2 rounds old"


COST = MemoryEstimate(
    (
        PieceMemory("actor", 2, {"weights": 2048, "rollout": 3 * 2**20, "env": 0}),
        PieceMemory("learner", 1, {"weights": 2048, "optimiser": 4096, "memory": 2**30}),
    ),
    4,
    4 * 300 * 2**20,
)


def fake_run(on: str, addresses: tuple[str, ...] = ()) -> Any:
    copies = [SimpleNamespace(address=at) for at in addresses]
    ring = SimpleNamespace(plan=parse("actor*2 | learner", lag=1))
    ring.lowering = Lowering(Kind.ROUNDS, ring.plan, in_driver=on == "inline")
    ring.copies = [copies[:2], copies[2:]]
    memory = SimpleNamespace(draws=8, warmup_rounds=0)
    task = SimpleNamespace(lanes=16, block=8, seed=0)
    task.algorithm = SimpleNamespace(rollout=32, memory=memory)
    options = SimpleNamespace(on=on, resources="learner:cpu=2" if on == "ray" else None)
    setup = SimpleNamespace(name="dqn", env_id="jax:x", options=options, task=task, tuned={})
    limits = SimpleNamespace(steps=5_000, until_return=float("inf"))
    return SimpleNamespace(
        setup=setup, ring=ring, limits=limits, steps=0, notes=["careful"], path="runs/a"
    )


def test_before_a_run_it_is_said_what_runs_where_and_what_it_costs() -> None:
    assert render.rows(fake_run("processes"), COST, 20 * 2**30) == [
        ("algorithm", "dqn"),
        ("env", "jax:x (world jax), 16 lanes in blocks of 8"),
        ("plan", "actor*2 | learner: on processes, weights 1 round old"),
        ("runs", "actor x 2 each in a process of its own: each weights 2.0 KiB, rollout 3.0 MiB"),
        (
            "",
            "learner in a process of its own: weights 2.0 KiB, optimiser 4.0 KiB, memory 1.0 GiB",
        ),
        ("round", "32 steps per lane, then 8 draws"),
        (
            "memory",
            "~2.2 GiB (20.0 GiB free): 4 processes 1.2 GiB, actor x 2 6.0 MiB, learner 1.0 GiB",
        ),
        ("until", "5,000 steps, seed 0"),
        # 16 lanes of 32 steps are a tenth of them
        (
            "note",
            "Runs stop at round boundaries (512 steps): this one may exceed --steps by up to 511.",
        ),
        ("note", "careful"),
        ("folder", "runs/a"),
    ]
    there = render.rows(fake_run("ray", ("10.0.0.1", "10.0.0.2", "10.0.0.1")), COST, 0)
    runs = [text.partition(":")[0] for label, text in there if label in ("runs", "")]
    assert runs == [
        "actor x 2 each in an actor of its own with 1 cpu, 1 on 10.0.0.1, 1 on 10.0.0.2",
        "learner in an actor of its own with 2 cpu, 1 on 10.0.0.1",
    ]
    inline = dict(render.rows(fake_run("inline"), COST, 0))
    assert inline["runs"].startswith("actor x 2 in this process")
    assert inline["memory"].startswith("~2.2 GiB: 4 processes")
    compiled = COST._replace(compiling=2**29)
    said = dict(render.rows(fake_run("processes"), compiled, 20 * 2**30))["memory"]
    assert said.startswith(
        "~2.2 GiB, plus up to 512.0 MiB while compiling (20.0 GiB free): 4 processes 1.2 GiB, "
    )
    said = dict(render.rows(fake_run("processes"), compiled, 0))["memory"]
    assert "while compiling: 4 processes" in said


def test_a_speed_that_is_not_known_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """A run of one call was compiled in it, and there is no other to measure."""
    setup = SimpleNamespace(name="ppo", env_id="jax:x", task=SimpleNamespace(seed=0))
    run: Any = SimpleNamespace(steps=128, episodes=0, return_mean=None, path="there", setup=setup)
    run.ring, run.evaluation = SimpleNamespace(base=None), None
    run.limits = Limits(1_000)
    clock = Throughput(run, began=0.0)
    list(clock.records([]))
    result = clock.result()
    assert result["steps_per_second"] is None
    command.print_result(result, as_json=False)
    told = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert told == ["algorithm", "env", "seed", "steps", "episodes", "seconds", "path"]


def report(steps: int) -> Report:
    return Report(0, steps, 0, np.zeros(0), np.zeros(0), {}, None, None)


def test_rounds_of_one_call_end_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are heard of at once; in a picture against seconds that would be a stair."""
    setup = SimpleNamespace(name="ppo", env_id="jax:x")
    ring, limits = SimpleNamespace(base=None), Limits(1_000)
    run: Any = SimpleNamespace(steps=0, ring=ring, setup=setup, limits=limits)
    now = SimpleNamespace(monotonic=lambda: now.seconds)
    monkeypatch.setattr(hooks, "time", now)
    told, rows = Throughput(run, began=100.0), list[Any]()
    told._utilisation = SimpleNamespace(look=lambda: None)  # type: ignore[assignment]
    # one round of 10 steps by the 5th second, then four in a call by the 7th
    for now.seconds, run.steps, rounds in ((105.0, 10, [10]), (107.0, 50, [20, 30, 40, 50])):
        rows += [record.row() for record in told.records([report(steps) for steps in rounds])]
    assert [row["seconds"] for row in rows] == [5.0, 5.5, 6.0, 6.5, 7.0]


def test_speed_and_time_left_begin_when_all_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = SimpleNamespace(name="dqn", env_id="jax:x")
    ring, limits = SimpleNamespace(base=None), Limits(1_000)
    run: Any = SimpleNamespace(steps=0, ring=ring, setup=setup, limits=limits)
    now = SimpleNamespace(monotonic=lambda: now.seconds)
    monkeypatch.setattr(hooks, "time", now)
    told, seen = Throughput(run, began=100.0), []
    told._utilisation = SimpleNamespace(look=lambda: None)  # type: ignore[assignment]
    # a warm-up of 10 steps a second, 20 s to compile what learns, then 5 steps a second
    for now.seconds, run.steps, ring.base in (
        (105.0, 10, None),
        (106.0, 20, None),
        (126.0, 30, "all has run"),
        (128.0, 40, "all has run"),
        (130.0, 50, "all has run"),
    ):
        (shown,) = told.records([report(run.steps)])
        seen.append((shown.steps_per_second, shown.seconds_left))
    # (1,000 - 40) / 5 and (1,000 - 50) / 5
    assert seen == [(None, None), (10.0, None), (None, None), (5.0, 192.0), (5.0, 190.0)]


@pytest.mark.parametrize(("rounds", "learns"), [(9, True), (10, False)])
def test_a_warm_up_that_outlasts_the_run_is_pointed_out(rounds: int, learns: bool) -> None:
    run = fake_run("processes")  # 16 lanes of 32 steps: ten rounds are more than 5,000
    run.setup.task.algorithm.memory.warmup_rounds = rounds
    said = dict(render.rows(run, COST, 0))["round"]
    assert said.endswith("of warm-up") == learns
    assert ("learns nothing" in said) != learns


def test_one_program_on_several_devices_is_said_to_be() -> None:
    run = fake_run("inline")
    run.ring.plan, run.ring.copies = parse("all*2"), [[None]]
    run.ring.lowering = Lowering(Kind.DATA_PARALLEL, run.ring.plan, devices=2)
    cost = MemoryEstimate((PieceMemory("all", 2, {}),), 1, 0)
    assert dict(render.rows(run, cost, 0))["plan"] == "all*2: one fused XLA program on 2 devices"
    run.ring.plan = parse("all")
    run.ring.lowering = Lowering(Kind.FUSED, run.ring.plan)
    assert dict(render.rows(run, cost, 0))["plan"] == "all: one fused XLA program"


@pytest.mark.parametrize(("steps", "said"), [(10_239, True), (10_240, False)])
def test_rounds_that_are_much_of_a_run_are_pointed_out(steps: int, said: bool) -> None:
    run = fake_run("processes")  # a round is 512 steps, a twentieth of 10,240
    run.limits.steps = steps
    notes = [text for label, text in render.rows(run, COST, 0) if label == "note"]
    assert ("round boundaries (512 steps)" in notes[0]) == said
