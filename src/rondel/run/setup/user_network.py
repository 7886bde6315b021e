"""A network of the user's own: as an argument, or by the path that it is imported from."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

from rondel.errors import OwnCodeError, RondelError
from rondel.nets.own import described
from rondel.spaces import Space, zeros
from rondel.types import Network

_FORMS = (
    "a pair (init, apply), where init(key) gives parameters and apply(params, obs) features, or a "
    "function of the observation space that returns such a pair"
)


PASSED_IN = "own:"  # before the name of what was handed over, and can't be imported by it


def name_of(network: Any) -> str:
    """What a run calls a network that it was handed; it has to be brought again."""
    return f"{PASSED_IN}{getattr(network, '__name__', type(network).__name__)}"


def takes_network(make: Any) -> bool:
    """Does an algorithm's `make` take a network of the user's own?"""
    return "network" in inspect.signature(make).parameters


def is_own(kind: Any) -> bool:
    """Is it a path to import, or the name of something that was handed over?"""
    return isinstance(kind, str) and ":" in kind


def imported(path: str) -> Any:
    """What "package.module:name" means."""
    module, _, name = path.partition(":")
    try:
        found = import_module(module)
    except (ImportError, ValueError) as error:
        raise RondelError(
            f"network={path!r}: the module {module} can't be imported ({error}). A path to a "
            "network is written package.module:name."
        ) from error
    if not hasattr(found, name):
        raise RondelError(f"network={path!r}: {module} has no {name!r}.")
    return getattr(found, name)


def as_network(given: Any, space: Space) -> Network:
    """A pair of functions, or a function of the observation space that makes one."""
    if callable(given):
        given = _made(given, space)
    pair = tuple(given) if isinstance(given, tuple | list) else ()
    if len(pair) != 2 or not all(map(callable, pair)):
        raise RondelError(f"{given!r} is no network: it should be {_FORMS}.")
    return Network(*pair)


def _made(function: Any, space: Space) -> Any:
    """What a function makes of the observation space."""
    try:
        return function(space)
    except Exception as error:
        raise OwnCodeError(
            f"{name_of(function)} can't make a network for observations {described(zeros(space))}: "
            f"{type(error).__name__}: {error}"
        ) from error
