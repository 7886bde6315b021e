"""What a new process is told to be, as bytes, and how JAX is set where it is told."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import jax

from rondel.errors import RondelError

_SETTINGS = (
    "jax_cpu_enable_async_dispatch",
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_threefry_partitionable",
)


def pack(recipes: Iterable[tuple[Any, tuple[Any, ...]]]) -> list[bytes]:
    """What makes each copy: a class and its arguments, most of which are the same for all."""
    recipes = list(recipes)
    pickled: dict[int, bytes] = {}  # by id, so that each is pickled once
    for x in (x for make, args in recipes for x in (make, *args)):
        pickled[id(x)] = pickled.get(id(x)) or _pickle(x)
    return [pickle.dumps([pickled[id(x)] for x in (make, *args)]) for make, args in recipes]


def _pickle(x: Any) -> bytes:
    try:
        pickled: bytes = cloudpickle.dumps(x)
        return pickled
    except Exception as error:
        raise RondelError(
            f"The environment or the algorithm can't be sent to another process: {error}. Make "
            "what can't be sent inside of it, or use on='threads'."
        ) from error


def jax_settings() -> bytes:
    """How JAX is set here, for processes that are to give the same numbers."""
    held = jax.config.values  # also those that are no attributes
    values = {name: getattr(jax.config, name, held.get(name)) for name in _SETTINGS}
    return pickle.dumps({name: value for name, value in values.items() if value is not None})
