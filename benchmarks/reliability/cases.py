"""The runs that faults disturb, and their results without any fault."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

import rondel


class Case(NamedTuple):
    algorithm: str
    env: str
    plan: str
    steps: int
    goal: float  # mean return of the last 100 episodes, at the end
    free: bool = False
    lag: int = 0
    block: int | None = None

    @property
    def name(self) -> str:
        how = f", free, lag {self.lag}" if self.free else f", lag {self.lag}" if self.lag else ""
        return f"{self.algorithm} {self.env} `{self.plan}`{how}".replace("|", "\\|")

    @property
    def exact(self) -> bool:
        """Is its result promised to the last bit?"""
        return not self.free and not self.env.startswith("gymnasium:")

    def start(self, on: str, **more: Any) -> Any:
        return rondel.start(
            self.algorithm,
            self.env,
            steps=self.steps,
            plan=self.plan,
            lag=self.lag,
            free=self.free,
            on=on,
            block=self.block,
            **more,
        )


CASES = (
    Case("ppo", "CartPole-v1", "actor*2 | learner", 400_000, 400),
    Case("dqn", "CartPole-v1", "actor*2 | memory | gradient+update", 30_000, 100, block=4),
    Case("ppo", "CartPole-v1", "env*2 | policy+learner", 200_000, 100),
    Case("ppo", "gymnasium:CartPole-v1", "actor*2 | learner", 200_000, 100),
    Case("dqn", "CartPole-v1", "actor*2 | learner", 100_000, 200, free=True, lag=2, block=4),
    Case("impala", "CartPole-v1", "actor*2 | learner", 300_000, 100, free=True, lag=4, block=2),
)


class Result(NamedTuple):
    """What must be equal whatever happened."""

    rounds: int
    steps: int
    learner: list[np.ndarray]  # its whole state, leaf by leaf

    def differs_from(self, other: Result) -> str:
        """Where two results differ in any bit; "" if nowhere."""
        if self[:2] != other[:2]:
            return f"rounds and steps are {self[:2]}, not {other[:2]}"
        pairs = list(zip(self.learner, other.learner, strict=True))
        same = sum(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)
        return "" if same == len(pairs) else f"{len(pairs) - same} of {len(pairs)} arrays differ"


def result_of(run: Any) -> Result:
    leaves = [np.asarray(x) for x in jax.tree.leaves(run.ring.learner())]
    return Result(run.ring.round, run.steps, leaves)


def undisturbed(case: Case) -> Result:
    """The result of one program in this process, which every deterministic plan must equal."""
    with case._replace(plan="all").start("inline") as run:
        for _ in run.rounds():
            pass
        return result_of(run)


def deaths_in(run: Any) -> int:
    """How often copies of a run have died so far."""
    return sum(len(copy.deaths) for copy in run.ring.backend.state.copies)
