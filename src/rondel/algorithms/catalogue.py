"""One file per family; this table is where names come from."""

from __future__ import annotations

import difflib
from importlib import import_module
from types import ModuleType

from rondel.errors import RondelError

TABLE = {
    "ppo": "rondel.algorithms.ppo",
    "dqn": "rondel.algorithms.dqn",
    "ddpg": "rondel.algorithms.ddpg",
    "td3": "rondel.algorithms.td3",
    "sac": "rondel.algorithms.sac",
    "qtopt": "rondel.algorithms.qtopt",
    "apex-ddpg": "rondel.algorithms.apex_ddpg",
    "c51": "rondel.algorithms.c51",
    "qrdqn": "rondel.algorithms.qrdqn",
    "rainbow": "rondel.algorithms.rainbow",
    "apex": "rondel.algorithms.apex",
    "gorila": "rondel.algorithms.gorila",
    "r2d2": "rondel.algorithms.r2d2",
    "r2d3": "rondel.algorithms.r2d3",
    "pg": "rondel.algorithms.pg",
    "a2c": "rondel.algorithms.a2c",
    "a3c": "rondel.algorithms.a3c",
    "impala": "rondel.algorithms.impala",
    "appo": "rondel.algorithms.appo",
    "es": "rondel.algorithms.es",
    "ars": "rondel.algorithms.ars",
    "alphazero": "rondel.algorithms.alphazero",
}


def find(name: str) -> ModuleType:
    """The module of an algorithm: it has a `Config` and a `make`."""
    if name not in TABLE:
        near = difflib.get_close_matches(name.lower(), TABLE, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(TABLE)}."
        raise RondelError(f"There is no algorithm named {name!r}; {hint}")
    return import_module(TABLE[name])


def name_of(module: ModuleType) -> str:
    """The name of an algorithm's module in the table; of one that is not there, its own."""
    names = {path: name for name, path in TABLE.items()}
    return names.get(module.__name__, module.__name__.rpartition(".")[2])
