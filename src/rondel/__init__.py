"""Distributed reinforcement learning on JAX.

Training is a ring of five stages (env, policy, memory, gradient, update). An algorithm says what
the stages compute, a plan says where the ring is cut and how many copies of each piece run.

>>> import rondel
>>> run = rondel.train("ppo", "CartPole-v1", steps=100_000)
>>> run.policy.act([0.0, 0.0, 0.0, 0.0])
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Each name is imported when it is first used: most processes need few of them, and jax is slow.
with open(os.path.join(__path__[0], "__init__.pyi"), encoding="utf-8") as _stub:
    _MODULES = {line.split()[-1]: line.split()[1] for line in _stub if line.startswith("from ")}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'rondel' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
