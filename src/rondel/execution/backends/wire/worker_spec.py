"""The worker of a copy as bytes, and JAX's settings, for processes that give the same numbers."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from rondel.errors import RondelError


def pack(workers: Iterable[tuple[Any, tuple[Any, ...]]]) -> list[bytes]:
    """Pickle the class and arguments of each worker; what they share is pickled once."""
    workers = list(workers)
    pickled: dict[int, bytes] = {}  # by id
    for x in (x for make, args in workers for x in (make, *args)):
        pickled[id(x)] = pickled.get(id(x)) or _pickle(x)
    return [pickle.dumps([pickled[id(x)] for x in (make, *args)]) for make, args in workers]


def _pickle(x: Any) -> bytes:
    try:
        pickled: bytes = cloudpickle.dumps(x)
        return pickled
    except Exception as error:
        raise RondelError(
            f"The environment or the algorithm can't be sent to another process: {error}. "
            "Create such objects inside it, or use --on threads."
        ) from error


def unpack_worker(packed: bytes, settings: bytes) -> Any:
    """Make a worker. JAX is set before the user's modules are imported, and if they import it."""
    make, *args = pickle.loads(packed)
    make = pickle.loads(make)
    configure_jax(settings)
    args = [pickle.loads(arg) for arg in args]
    configure_jax(settings)
    return make(*args)


def jax_settings() -> bytes:
    """How JAX is set in the driver. Bytes, as to unpickle some of its types would import it."""
    return pickle.dumps(sys.modules["jax"].config.values)


def configure_jax(settings: bytes) -> None:
    """Set JAX as it is in the driver, if it is imported here."""
    if jax := sys.modules.get("jax"):
        here = jax.config.values
        for name, value in pickle.loads(settings).items():
            if here.get(name, value) != value:
                jax.config.update(name, value)
