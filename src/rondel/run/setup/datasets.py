"""Files of recorded episodes, for algorithms that learn from demonstrations.

A safetensors file with arrays [rows, ...] by name: `obs` (`obs/…` for each part of a tree), action,
reward, terminated, truncated, valid, first. Episodes follow each other; one of n steps has n + 1
rows. Its last row holds only the final observation and is not valid. Actions are in the policy's
units: choices from 0, Box actions in -1..1. `rondel.record` writes such files.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

from rondel.errors import RondelError
from rondel.spaces import Box, Discrete, zeros
from rondel.types import EnvSpec, Trajectory

_FLAGS = ("terminated", "truncated", "valid", "first")
_HOW = "`rondel record` and rondel.record write such files."


def with_absolute_path(config: Any) -> Any:
    """The config with an absolute path to its file, so that a run resumes from any folder."""
    path = getattr(config, "demonstrations", "")
    return dataclasses.replace(config, demonstrations=str(Path(path).resolve())) if path else config


def read(path: str, spec: EnvSpec) -> Trajectory:
    """Read the episodes of a file as the rows of one lane; they must fit the environment."""
    if not path:
        raise RondelError(f"demonstrations must name a file of recorded episodes. {_HOW}")
    if not Path(path).is_file():
        raise RondelError(f"There is no file {path!r} of demonstrations. {_HOW}")
    try:
        arrays = load_file(path)
    except Exception as error:  # safetensors and NumPy raise many kinds
        raise RondelError(f"{path} is not a file of demonstrations ({error}). {_HOW}") from None
    rows = len(arrays["reward"]) if "reward" in arrays else 0
    action = zeros(spec.action, rows).astype(action_dtype(spec))
    like = {"obs": zeros(spec.observation, rows), "action": action}
    like |= {"reward": np.zeros(rows, np.float32)}
    like |= {name: np.zeros(rows, bool) for name in _FLAGS}
    wanted = named_arrays(like)
    for name, leaf in wanted.items():
        have = arrays.get(name)
        if have is None or (have.dtype, have.shape) != (leaf.dtype, leaf.shape) or not rows:
            found = "nothing" if have is None else f"{have.dtype} {list(have.shape)}"
            need = f"{leaf.dtype} {['rows', *leaf.shape[1:]]}".replace("'", "")
            raise RondelError(
                f"{name} in {path} must be {need} for {spec.id}, got {found}. Are these "
                f"demonstrations of another environment? {_HOW}"
            )
    track = jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in wanted])
    if isinstance(spec.action, Discrete) and not _within(track["action"], spec.action.n):
        raise RondelError(
            f"Actions in {path} must be 0 to {spec.action.n - 1}, those of {spec.id}."
        )
    return _trajectory(track)


def action_dtype(spec: EnvSpec) -> str:
    """The dtype that policies act in."""
    return "float32" if isinstance(spec.action, Box) else spec.action.dtype


def named_arrays(track: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of a track by their names in the file."""
    pairs = jax.tree_util.tree_flatten_with_path(track)[0]
    names = (jax.tree_util.keystr(keys, simple=True, separator="/") for keys, _ in pairs)
    return {name: np.ascontiguousarray(leaf) for name, (_, leaf) in zip(names, pairs, strict=True)}


def _within(action: np.ndarray, n: int) -> bool:
    return bool(((action >= 0) & (action < n)).all())


def _trajectory(track: dict[str, Any]) -> Trajectory:
    rows = jax.tree.map(lambda x: x[:, None], track)

    def longer(x: Any) -> Any:
        return np.concatenate([x, x[-1:]])

    return Trajectory(
        obs=jax.tree.map(longer, rows.pop("obs")),
        first=longer(rows.pop("first")),
        **rows,
        extras=(),
        carry=(),
        lane=jnp.zeros(1, jnp.int32),
    )
