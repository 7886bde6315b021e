"""The backend of threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from execution.backends import same
from rondel.execution.backends.threads import Threads


@pytest.mark.parametrize(("name", "plan", "lag"), same.CASES)
def test_threads_equal_inline(name: str, plan: str, lag: int) -> None:
    same.assert_equals_inline(Threads(), name, plan, lag)


@pytest.mark.parametrize("plan", same.HOST_PLANS)
def test_threads_equal_inline_on_gymnasium(plan: str) -> None:
    same.assert_equals_inline(Threads(), "toy", plan, env=same.gymnasium_cartpole())


def test_no_thread_stays() -> None:
    before = set(threading.enumerate())
    same.run_on(Threads(), "dqn", "env*2 | policy | learner", steps=200)
    assert set(threading.enumerate()) <= before


def test_the_users_exception_comes_out(failing: Any) -> None:
    with pytest.raises(failing.kind, match=r"lane 9.*last action") as caught:
        same.run_on(Threads(), "dqn", "env*4 | policy | learner", env=failing.world)
    # two phases of 8 lanes: env 1 has lanes 0 and 1 of the first, 8 and 9 of the second
    assert "In env 1 of 4." in caught.value.__notes__
