"""Small checkpoints, and whether one is good."""

from typing import NamedTuple

import jax
import numpy as np

from rondel.run.storage import checkpoint
from rondel.run.storage.locate import MEMORY, STATE


class State(NamedTuple):
    params: object
    opt_state: object


class Wrapped(NamedTuple):
    inner: object
    count: object


def small(n):
    """A state and a memory in which every number is n."""
    return {"learner": State({"w": np.full(5, n)}, ())}, (np.full((2, 3), n),)


def save_small(folder, n, keep=3):
    return checkpoint.save(folder, *small(n), {"n": n}, keep)


def assert_good(path):
    """The checkpoint is whole and of one piece; gives its number."""
    state, memory, meta = checkpoint.load(path, *small(0))
    arrays = jax.tree.leaves((state, memory))
    assert arrays
    assert all((array == meta["n"]).all() for array in arrays)
    return meta["n"]


def verify(path):
    """Read all of a checkpoint; CheckpointError names a damaged file."""
    checkpoint._checked(path, (STATE, MEMORY))


def hidden(folder):
    return [path.name for path in (folder / "checkpoints").iterdir() if path.name[0] == "."]
