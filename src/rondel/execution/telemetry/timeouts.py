"""How long an answer of a copy may take. It imports no jax."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, NamedTuple

START = 60.0  # seconds that anything may take the first time, since it is imported or compiled
STOPPED = 5.0  # seconds after which a process that someone stopped counts as hung


class Timeouts(NamedTuple):
    """Seconds for an answer."""

    usual: float
    first: float  # for the first of its kind

    def of(self, request: Any, answered: Container[Any]) -> float:
        """Seconds for a request to a copy that has answered these kinds before."""
        return self.usual if request in answered else self.first

    def twice(self) -> Timeouts:
        """For a copy that itself waits this long for others, and then names the late one."""
        return Timeouts(2 * self.usual, 2 * self.first)


def timeouts_for(deadline: float) -> Timeouts:
    """The timeouts of a run with this --deadline."""
    return Timeouts(deadline, max(deadline, START))


def no_answer(seconds: float, silent: Iterable[str]) -> str:
    """The sentence for copies that are late."""
    return (
        f"No answer within {seconds:g} s from {'; '.join(silent)}. It hangs, or needs a longer "
        "--deadline."
    )
