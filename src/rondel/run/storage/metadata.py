"""The metadata of a run in its checkpoint, validated before use.

Anyone can compute a checksum and write a meta.json: with wrong types, with huge numbers, with sizes
that the arrays beside it don't have. These are refused before anything is allocated.
"""

from __future__ import annotations

import reprlib
import typing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from rondel.execution.stages import initial
from rondel.execution.stages.memory_limit import bytes_of
from rondel.run.setup.options import fits
from rondel.run.setup.prepare import Setup
from rondel.run.storage import checkpoint, locate
from rondel.run.storage.checkpoint import CheckpointError


class SavedRun(NamedTuple):
    """The metadata of a run."""

    algorithm: str
    env: str
    seed: int
    config: dict[str, Any] | None  # None if it was not a dataclass
    options: dict[str, Any]
    total_steps: int
    until_return: float | None
    machine: str
    round: int
    steps: int
    in_flight: int  # rounds started but not learned from
    eval_episodes: int
    eval_every: int


_BELOW = {
    "seed": 2**32,
    "total_steps": 2**63,
    "round": 2**31,
    "steps": 2**63,
    "in_flight": 2_000,
    "eval_episodes": 2**31,
    "eval_every": 2**63,
}


def read(path: Path) -> SavedRun:
    """The metadata of the run whose checkpoint is in `path`."""
    meta = checkpoint.read_meta(path)
    for name, hint in typing.get_type_hints(SavedRun).items():
        if name not in meta:
            raise CheckpointError(f"{path} has no {name} in its metadata.")
        value = meta[name]
        sensible = name not in _BELOW or (fits(value, int) and 0 <= value < _BELOW[name])
        if not fits(value, hint) or not sensible:
            raise CheckpointError(
                f"{path} has {name}={reprlib.repr(value)}, which Rondel does not write."
            )
    return SavedRun(*(meta[name] for name in SavedRun._fields))


def check_lanes(path: Path, saved: SavedRun) -> None:
    """Refuse metadata with another number of lanes than the arrays."""
    lanes = saved.options.get("lanes")
    shapes = checkpoint.read_shapes(path)
    held = {shape[:1] for name, shape in shapes.items() if name.startswith("lanes/")}
    if not fits(lanes, int) or held != {(lanes,)}:
        raise CheckpointError(f"{path} has lanes={reprlib.repr(lanes)}, but its arrays differ.")


def check_learner(path: Path, setup: Setup) -> None:
    """Refuse metadata with larger networks than the arrays could hold."""
    asked = bytes_of(jax.eval_shape(partial(initial.init_learner, setup.task), np.uint32(0)))
    held = (path / locate.STATE).stat().st_size
    if asked > held:
        raise CheckpointError(
            f"{path} has a learner of {asked:,} bytes, but its arrays take only {held:,}."
        )
