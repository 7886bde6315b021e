"""The backend of threads."""

from __future__ import annotations

from typing import Any

import pytest

from execution.backends import same, tiny
from rondel.execution.backends.threads import Threads


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
