"""What a checkpoint says of its run, checked before any of it is believed.

Whoever can compute a checksum can write a meta.json: a wrong type, a number beyond all sense, a
size that the arrays beside it don't have. Each gets a sentence, and nothing is made by it before.
"""

from __future__ import annotations

import reprlib
import typing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from rondel.execution.stages import learning
from rondel.execution.stages.memory_limit import bytes_of
from rondel.run.setup.options import fits
from rondel.run.setup.prepare import Setup
from rondel.run.storage import checkpoint, locate
from rondel.run.storage.checkpoint import CheckpointError


class SavedRun(NamedTuple):
    """A run as its checkpoint tells of it."""

    algorithm: str
    env: str
    seed: int
    config: dict[str, Any] | None  # None: not ours to read
    options: dict[str, Any]
    total_steps: int
    until_return: float | None
    machine: str
    round: int
    steps: int
    in_flight: int  # rounds that were started and not learned from
    eval_episodes: int


_BELOW = {
    "seed": 2**32,
    "total_steps": 2**63,
    "round": 2**31,
    "steps": 2**63,
    "in_flight": 2_000,
    "eval_episodes": 2**31,
}


def read(path: Path) -> SavedRun:
    """What the checkpoint in `path` says of its run."""
    meta = checkpoint.read_meta(path)
    for name, hint in typing.get_type_hints(SavedRun).items():
        if name not in meta:
            raise CheckpointError(f"{path} doesn't say its {name}.")
        value = meta[name]
        sensible = name not in _BELOW or (fits(value, int) and 0 <= value < _BELOW[name])
        if not fits(value, hint) or not sensible:
            raise CheckpointError(
                f"{path} says {name}={reprlib.repr(value)}, which is not what Rondel writes."
            )
    return SavedRun(*(meta[name] for name in SavedRun._fields))


def check_lanes(path: Path, saved: SavedRun) -> None:
    """Refuse lanes that the arrays don't have."""
    lanes = saved.options.get("lanes")
    shapes = checkpoint.read_shapes(path)
    held = {shape[:1] for name, shape in shapes.items() if name.startswith("lanes/")}
    if not fits(lanes, int) or held != {(lanes,)}:
        raise CheckpointError(f"{path} says lanes={reprlib.repr(lanes)}, and its arrays differ.")


def check_learner(path: Path, setup: Setup) -> None:
    """Refuse networks that are bigger than all of the arrays."""
    asked = bytes_of(jax.eval_shape(partial(learning.init_learner, setup.task), np.uint32(0)))
    held = (path / locate.STATE).stat().st_size
    if asked > held:
        raise CheckpointError(
            f"{path} tells of a learner of {asked:,} bytes, and its arrays are {held:,}."
        )
