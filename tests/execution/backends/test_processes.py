"""The backend of local processes: real ones, that really die."""

from __future__ import annotations

from typing import Any

import pytest

from execution.backends import same
from rondel.execution.backends.processes import Processes


@pytest.mark.parametrize(("name", "plan", "lag"), same.CASES)
def test_processes_equal_inline(name: str, plan: str, lag: int) -> None:
    same.assert_equals_inline(Processes(), name, plan, lag)


@pytest.mark.parametrize("plan", same.HOST_PLANS)
def test_processes_equal_inline_on_gymnasium(plan: str) -> None:
    same.assert_equals_inline(Processes(), "toy", plan, env=same.gymnasium_cartpole())


def test_the_users_exception_comes_out_of_a_process(failing: Any) -> None:
    with pytest.raises(failing.kind, match=r"lane 9.*last action") as caught:
        same.run_on(Processes(), "dqn", "env*4 | policy | learner", env=failing.world)
    assert "In env 1 of 4." in caught.value.__notes__
    assert "the pole is on fire" in str(caught.value.__cause__)
