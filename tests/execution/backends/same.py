"""What every backend must give: the numbers of the inline one."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from execution.test_equality import ENV, assert_equal, run, task
from rondel.envs.registry import make
from rondel.execution.backends.inline import Inline
from rondel.execution.loop.ring import Ring
from rondel.plan.parser import parse

# Each algorithm at least twice, each kind of cut and of copy at least once.
CASES = (
    ("ppo", "actor*2 | learner", 0),
    ("toy", "actor*2 | learner", 2),
    ("toy", "actor+memory+gradient*2 | update", 0),
    *(
        pytest.param(*case, marks=pytest.mark.long)
        for case in (
            ("toy", "all", 0),
            ("dqn", "env*4 | policy+learner", 0),
            ("dqn", "actor*2 | memory*2 | gradient+update", 0),
            ("toy", "env*2 | policy*2 | memory | gradient | update", 1),
            ("ppo", "all*2", 0),
            ("dqn", "actor*2 | memory*2 | gradient*4 | update", 2),
            ("es", "actor*2 | learner", 0),
            ("es", "env*4 | policy+learner", 0),
        )
    ),
)
HOST_PLANS = ("actor*2 | learner", "env*8 | policy+learner", "env*2 | policy | learner")


@cache
def gymnasium_cartpole() -> Any:
    return make("gymnasium:CartPole-v1")


def run_on(
    backend: Any, name: str, plan: str, lag: int = 0, env: Any = ENV, steps: int = 900
) -> dict[str, Any]:
    """A short run on a backend, and all that it came to."""
    ring = Ring(task(name, env), parse(plan, lag), backend)
    try:
        return run(ring, steps)
    finally:
        ring.close()


@cache
def inline(name: str, plan: str, lag: int, env: Any, steps: int = 900) -> dict[str, Any]:
    return run_on(Inline(), name, plan, lag, env, steps)


def assert_equals_inline(backend: Any, name: str, plan: str, lag: int = 0, env: Any = ENV) -> None:
    """The same run on this backend and inline gives the same numbers, bit for bit."""
    assert_equal(run_on(backend, name, plan, lag, env), inline(name, plan, lag, env))
