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
    from rondel.plan.plan import Plan as Plan
    from rondel.run.analysis.compare import compare as compare
    from rondel.run.analysis.plot import plot as plot
    from rondel.run.playback.evaluate import evaluate as evaluate
    from rondel.run.playback.record import record as record
    from rondel.run.playback.watch import watch as watch
    from rondel.run.policy.evaluation import Evaluation as Evaluation
    from rondel.run.policy.policy import Policy as Policy
    from rondel.run.preflight.explain import explain as explain
    from rondel.run.profiling.profile import profile as profile
    from rondel.run.session.load import load as load
    from rondel.run.session.run import Run as Run
    from rondel.run.training.multi_seed import Runs as Runs
    from rondel.run.training.train import resume as resume
    from rondel.run.training.train import start as start
    from rondel.run.training.train import train as train
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
    "Plan": "rondel.plan.plan",
    "Evaluation": "rondel.run.policy.evaluation",
    "Policy": "rondel.run.policy.policy",
    "Run": "rondel.run.session.run",
    "Runs": "rondel.run.training.multi_seed",
    "compare": "rondel.run.analysis.compare",
    "evaluate": "rondel.run.playback.evaluate",
    "explain": "rondel.run.preflight.explain",
    "load": "rondel.run.session.load",
    "plot": "rondel.run.analysis.plot",
    "profile": "rondel.run.profiling.profile",
    "record": "rondel.run.playback.record",
    "resume": "rondel.run.training.train",
    "start": "rondel.run.training.train",
    "train": "rondel.run.training.train",
    "watch": "rondel.run.playback.watch",
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
