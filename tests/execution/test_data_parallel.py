"""Copies of the whole ring on several devices: one program, the same numbers."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from execution.test_equality import task
from marks import few_of
from rondel.envs.registry import make
from rondel.execution.hostenv.host_envs import HostEnvs
from rondel.execution.stages.task import Task
from rondel.execution.workers import stage_worker
from rondel.execution.workers.gradient_parallel import gradient_parallel_programs
from rondel.execution.workers.stage_worker import StageWorker
from rondel.plan.parser import parse

TESTS = Path(__file__).parents[1]

# in a process of its own, since the number of devices is settled when JAX starts
SCRIPT = """
import sys

from rondel.run.setup import jax_process

jax_process.configure_jax()
import jax

jax.config.update("jax_num_cpu_devices", 2)
import numpy as np

from algorithms.test_ppo_memory import recurrent_task
from execution import test_equality_control as control
from execution.backends.same import gymnasium_cartpole
from execution.test_equality import ENV, assert_equal, run, task
from rondel.execution.backends.lowering import lower
from rondel.execution.loop.ring import Ring
from rondel.plan.parser import parse

name, text, world = sys.argv[1:]
plan, env = parse(text), gymnasium_cartpole() if world == "gymnasium" else ENV
stop, end = {"es": (600, 1_900), "qtopt": (1_600, 3_600), "sac": (1_600, 3_600)}.get(
    name, (300, 700)
)
if name == "gru":
    made = recurrent_task(name)
else:
    made = control.task(name) if name in ("qtopt", "sac") else task(name, env)
ring = Ring(made, plan)
assert len(ring.policy) == 1 and ring.gradient is ring.policy
begun = jax.tree.map(np.array, ring.learner())
run(ring, stop)
saved, at = jax.tree.map(np.array, (ring.tree(), ring.stored())), (ring.round, ring.steps)
apart = Ring(made, plan, lowering=lower(made, plan, in_driver=True, devices=1))
assert len(apart.gradient) == 2
rings = [ring]
if world == "jax":  # another environment begins new episodes
    rings.append(Ring(made, plan))
    rings[1].restore(*saved, *at)
    expected = run(apart, end)
else:
    run(apart, stop)
    expected = run(apart, end)
changed = jax.tree.map(lambda x, y: bool((x != y).any()), begun, expected["learner"])
assert sum(jax.tree.leaves(changed)) > 3  # else nothing was learned that could differ
for meshed in (run(each, end) for each in rings):
    meshed["returns"] = expected["returns"]  # those before the stop were reported there
    assert_equal(meshed, expected)
print("equal")
"""
SPREAD = "actor+memory | gradient*2 | update"
CASES = (
    ("toy", "all*2", "jax"),
    ("ppo", "all*2", "jax"),
    ("ppo", SPREAD, "jax"),
    ("dqn", "actor | memory | gradient*2 | update", "jax"),  # with priorities
    ("dqn", SPREAD, "gymnasium"),
    ("sac", SPREAD, "jax"),  # in which a slice of a batch had become part of sums
    *((name, plan, "jax") for name in ("qtopt", "gru", "es") for plan in ("all*2", SPREAD)),
)


@pytest.mark.parametrize(("name", "plan", "world"), few_of(CASES, CASES[3:4]))
def test_copies_on_devices_equal_copies_in_turn(name: str, plan: str, world: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, name, plan, world],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.stdout.strip() == "equal", done.stderr


WORLD = make("gymnasium:CartPole-v1")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What workers that are made here ask for, and close."""
    seen: dict[str, list[Any]] = {"memory": [], "closed": []}
    monkeypatch.setattr(stage_worker, "check_fits_in_memory", seen["memory"].append)
    monkeypatch.setattr(HostEnvs, "close", lambda self: seen["closed"].append(self))
    return seen


def on_two(made: Task, **changed: Any) -> None:
    """Make a worker for two devices; nothing runs, so it does not matter that there is one here."""
    programs = gradient_parallel_programs(made, 2)._replace(**changed)
    StageWorker(made, parse("all"), 0, 0, programs)


def test_there_must_be_room_for_the_memory_of_every_device(made: dict[str, list[Any]]) -> None:
    StageWorker(task("dqn", WORLD), parse("all"), 0, 0)
    on_two(task("dqn", WORLD))
    one, two = made["memory"]
    assert two == 2 * one > 0


def test_environments_are_closed_if_devices_take_no_more(made: dict[str, list[Any]]) -> None:
    def full(*_: Any) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        on_two(task("dqn", WORLD), place=full)
    assert len(made["closed"]) == 1


TREE = """
import jax

jax.config.update("jax_num_cpu_devices", 2)
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from rondel.execution.workers import data_parallel

data_parallel._SMALL = 5
jax.config.update("jax_numpy_rank_promotion", "allow")


def every(x):
    copy = jax.lax.axis_index("copy")
    tree = {"a": x + copy, "b": jnp.ones((2, 3)) * copy, "n": copy, "yes": copy > 0}
    return data_parallel.all_gather(tree)


devices = jax.sharding.Mesh(np.array(jax.devices()), ("copy",))
none = PartitionSpec()
program = jax.shard_map(every, mesh=devices, in_specs=none, out_specs=none, check_vma=False)
print(jax.tree.map(lambda x: (x.dtype.name, x.tolist()), program(jnp.arange(2.0))))
"""


def test_trees_of_all_copies_in_their_order() -> None:
    told = subprocess.check_output([sys.executable, "-c", TREE], text=True)
    assert ast.literal_eval(told) == {
        "a": ("float32", [[0.0, 1.0], [1.0, 2.0]]),
        "b": ("float32", [[[0.0] * 3] * 2, [[1.0] * 3] * 2]),  # larger than what is joined
        "n": ("int32", [0, 1]),
        "yes": ("bool", [False, True]),
    }
