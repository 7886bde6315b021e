"""The backend of threads."""

from __future__ import annotations

from typing import Any

import pytest

from execution.backends import same, tiny
from execution.test_equality import task
from rondel.execution.backends.threads import Threads
from rondel.execution.loop.ring import Ring
from rondel.execution.loop.sync_loop import Limits, run_rounds
from rondel.plan.parser import parse


@pytest.mark.parametrize(("name", "plan", "lag"), same.CASES)
def test_threads_equal_inline(name: str, plan: str, lag: int) -> None:
    same.assert_equals_inline(Threads(), name, plan, lag)


@pytest.mark.parametrize("plan", same.HOST_PLANS)
def test_threads_equal_inline_on_gymnasium(plan: str) -> None:
    same.assert_equals_inline(Threads(), "toy", plan, env=same.gymnasium_cartpole())


def test_the_users_exception_comes_out(failing: Any) -> None:
    with pytest.raises(failing.kind, match=r"lane 9.*last action") as caught:
        tiny.run(Threads(), "env*4 | policy | learner", failing.task)
    # two phases of 8 lanes: env 1 has lanes 0 and 1 of the first, 8 and 9 of the second
    assert "In env 1 of 4." in caught.value.__notes__


@pytest.mark.parametrize("stage", ["absorb", "add"])
def test_a_failure_that_nobody_waits_for_ends_the_run(stage: str) -> None:
    broken = task("dqn")

    def fail(*_: Any) -> Any:
        raise ValueError(f"no {stage} today")

    algorithm = broken.algorithm
    if stage == "absorb":
        algorithm = algorithm._replace(absorb=fail)
    else:
        algorithm = algorithm._replace(memory=algorithm.memory._replace(add=fail))
    ring = Ring(broken._replace(algorithm=algorithm), parse("actor | learner"), Threads())
    try:
        with pytest.raises(ValueError, match=f"no {stage} today"):
            list(run_rounds(ring, Limits(500)))
    finally:
        ring.close()
