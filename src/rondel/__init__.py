"""Distributed reinforcement learning on JAX.

Training is a ring of five stages (env, policy, memory, gradient, update). An algorithm says what
the stages compute, a plan says where the ring is cut and how many copies of each piece run.

>>> import rondel
>>> run = rondel.train("ppo", "CartPole-v1", steps=100_000)
>>> run.policy.act([0.0, 0.0, 0.0, 0.0])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rondel.errors import RondelError as RondelError
    from rondel.plan import Plan as Plan
    from rondel.run.apart import profile as profile
    from rondel.run.compare import compare as compare
    from rondel.run.evaluation import Evaluation as Evaluation
    from rondel.run.explain import explain as explain
    from rondel.run.playing import evaluate as evaluate
    from rondel.run.playing import record as record
    from rondel.run.plot import plot as plot
    from rondel.run.policy import Policy as Policy
    from rondel.run.run import Run as Run
    from rondel.run.several import Runs as Runs
    from rondel.run.training import load as load
    from rondel.run.training import resume as resume
    from rondel.run.training import start as start
    from rondel.run.training import train as train
    from rondel.run.watching import watch as watch
    from rondel.spaces import Box as Box
    from rondel.spaces import Discrete as Discrete
    from rondel.spaces import MultiBinary as MultiBinary
    from rondel.spaces import MultiDiscrete as MultiDiscrete
    from rondel.types import Algorithm as Algorithm
    from rondel.types import Env as Env
    from rondel.types import EnvSpec as EnvSpec
    from rondel.types import Game as Game
    from rondel.types import HostWorld as HostWorld
    from rondel.types import Memory as Memory
    from rondel.types import Network as Network
    from rondel.types import Step as Step
    from rondel.types import Trajectory as Trajectory

# Imported when they are first asked for: most processes need few of them.
_WHERE = {
    "Algorithm": "rondel.types",
    "Env": "rondel.types",
    "EnvSpec": "rondel.types",
    "Game": "rondel.types",
    "HostWorld": "rondel.types",
    "Memory": "rondel.types",
    "Network": "rondel.types",
    "Step": "rondel.types",
    "Trajectory": "rondel.types",
    "RondelError": "rondel.errors",
    "Box": "rondel.spaces",
    "Discrete": "rondel.spaces",
    "MultiBinary": "rondel.spaces",
    "MultiDiscrete": "rondel.spaces",
    "Plan": "rondel.plan",
    "Evaluation": "rondel.run.evaluation",
    "Policy": "rondel.run.policy",
    "Run": "rondel.run.run",
    "Runs": "rondel.run.several",
    "compare": "rondel.run.compare",
    "evaluate": "rondel.run.playing",
    "explain": "rondel.run.explain",
    "load": "rondel.run.training",
    "plot": "rondel.run.plot",
    "profile": "rondel.run.apart",
    "record": "rondel.run.playing",
    "resume": "rondel.run.training",
    "start": "rondel.run.training",
    "train": "rondel.run.training",
    "watch": "rondel.run.watching",
}

__version__ = "0.1.0"
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'rondel' has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_WHERE]
