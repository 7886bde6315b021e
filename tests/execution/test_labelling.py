"""The stage `label`: wherever it runs, and in however many copies, the numbers are the same."""

from __future__ import annotations

from contextlib import closing
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from execution import toy
from execution.backends.test_recovery import strike
from execution.test_equality import BLOCK, ENV, LANES, SEED, SPEC, assert_equal, run
from rondel.execution.backends.processes.backend import Processes
from rondel.execution.backends.threads import Threads
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.sync_loop import Limits, run_rounds
from rondel.execution.stages.labelling import compute_label
from rondel.execution.stages.peers import GradientContribution
from rondel.execution.stages.task import Task
from rondel.execution.workers.stage_worker import StageWorker
from rondel.plan.parser import parse

STEPS = 900
HOME = "actor*2 | memory | label*2 | gradient+update"
TASK = Task(toy.labelled(None, SPEC), ENV, SEED, LANES, BLOCK)


def on(backend: Any, plan: str, lag: int = 0, free: bool = False) -> dict[str, Any]:
    with closing(Ring(TASK, parse(plan, lag, free), backend)) as ring:
        return run(ring, STEPS)


@cache
def whole(lag: int = 0) -> dict[str, Any]:
    return on(None, "all", lag)


CUT = (
    HOME,
    "actor | memory | gradient | update",  # with the gradient, where nothing is said
    "actor | memory+label | gradient+update",
    "actor | memory | label | gradient | update",
    "actor | memory | gradient+update",
    "actor | memory | label+gradient | update",
    "actor | memory+label+gradient+update",
    "actor+memory+label | gradient | update",
    "actor+memory+label+gradient+update",
)


@pytest.mark.long  # quick is that of QT-Opt, in test_equality_control
@pytest.mark.parametrize("plan", CUT)
def test_a_cut_ring_equals_the_fused_one(plan: str) -> None:
    assert_equal(on(None, plan), whole())


@pytest.mark.long
def test_labels_matter() -> None:
    with pytest.raises(AssertionError):
        assert_equal(run(Ring(TASK._replace(algorithm=toy.make(None, SPEC))), STEPS), whole())


@pytest.mark.long
def test_threads_equal_the_fused_ring() -> None:
    assert_equal(on(Threads(), HOME), whole())


@pytest.mark.long
def test_processes_equal_the_fused_ring() -> None:
    assert_equal(on(Processes(), HOME), whole())


@pytest.mark.long
def test_a_delay_line_is_the_same() -> None:
    assert_equal(on(None, HOME, lag=2), whole(lag=2))


@pytest.mark.long
@pytest.mark.parametrize(
    "plan",
    [
        "actor | memory*2 | label | gradient+update",
        "actor | memory*2 | label*2 | gradient+update",
        "actor+memory+label*2 | gradient | update",
    ],
)
def test_shards_of_memory_are_labelled_alike(plan: str) -> None:
    assert_equal(on(None, plan), on(None, "actor | memory*2 | gradient+update"))


@pytest.mark.long
def test_copies_of_the_gradient_are_labelled_alike() -> None:
    apart = on(None, "actor | memory | label*2 | gradient*2 | update")
    assert_equal(apart, on(None, "actor | memory | gradient*2 | update"))


@pytest.mark.long
@pytest.mark.parametrize("plan", [HOME, "actor+memory+gradient*2 | update"])
def test_a_free_run_labels_too(plan: str) -> None:
    ring = Ring(TASK, parse(plan, lag=2, free=True), Threads())
    with closing(ring):
        reports = list(run_rounds(ring, Limits(STEPS)))
    assert np.isfinite([report.metrics.get("loss", 0.0) for report in reports]).all()
    assert "loss" in reports[-1].metrics


@pytest.mark.long
def test_a_run_goes_on_under_another_plan() -> None:
    ring = Ring(TASK, parse(HOME))
    run(ring, 500)
    saved = jax.tree.map(np.array, (ring.tree(), ring.stored()))
    other = Ring(TASK)
    other.restore(*saved, ring.round, ring.steps)
    assert_equal(run(other, STEPS) | {"returns": whole()["returns"]}, whole())


@pytest.mark.long
def test_a_run_whose_labellers_were_killed_equals_another() -> None:
    backend = Processes(restarts=20)
    with closing(Ring(TASK, parse(HOME), backend)) as ring:
        reports = run_rounds(ring, Limits(STEPS))
        next(reports)
        backend.after_round(now=True)
        next(reports)
        labellers = [copy for copy in backend._copies if copy.name.startswith("label")]
        for i, copy in enumerate(labellers):
            strike(backend, backend._copies.index(copy), 0.02 + 0.05 * i)
        result = run(ring, STEPS)
        assert any(backend.state.copies[copy.index].deaths for copy in labellers)
    assert_equal(result | {"returns": whole()["returns"]}, whole())


def numbered(variables: Any, batch: Any, keys: Any) -> Any:
    """A label that tells how many rows were labelled at a time, and by which keys."""
    size = jnp.full(keys.shape, keys.shape[0])
    return {**batch, "size": size, "key": jax.random.key_data(keys)[:, 1] + variables}


@pytest.mark.parametrize(("rows", "size"), [(48, 16), (40, 40)])
def test_rows_have_keys_of_their_own_and_blocks(rows: int, size: int) -> None:
    task = TASK._replace(algorithm=TASK.algorithm._replace(label=numbered))
    batch = {"x": jnp.arange(rows)}

    def labelled(batch: Any, part: tuple[int, int] = (0, 1)) -> Any:
        zero = jnp.int32(0)
        return compute_label(task, jnp.uint32(7), jnp.uint32(0), batch, zero, zero, part)

    made = labelled(batch)
    assert (made["size"] == size).all()
    assert len(set(made["key"].tolist())) == rows
    second = labelled({"x": batch["x"][rows // 2 :]}, (1, 2))
    np.testing.assert_array_equal(second["key"], made["key"][rows // 2 :])


def test_labels_know_the_learner_as_it_was_when_the_round_began_to_learn() -> None:
    """Updates move it on; what labels are made of stays until the next round's summary."""
    home = parse("actor | memory | gradient+update")
    worker = StageWorker(TASK, home, 2, 0)
    worker.absorb((jnp.zeros((LANES, 4)), jnp.ones(LANES)))
    before = worker._known
    worker.update(GradientContribution(worker.learner.params, jnp.float32(1.0), {}))
    assert worker._known is before
    jax.tree.map(np.testing.assert_array_equal, before[1], before[0])  # the target, at first
    with pytest.raises(AssertionError):
        jax.tree.map(np.testing.assert_array_equal, worker.learning()[1], before[1])
    assert StageWorker(TASK, parse(HOME), 3, 0).labels is False
    assert StageWorker(TASK, parse(HOME), 2, 1).labels is True
