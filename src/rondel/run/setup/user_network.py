"""A network of the user's own: passed as an argument, or imported from "module:name"."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from rondel.errors import OwnCodeError, RondelError
from rondel.nets.torso import described
from rondel.spaces import zeros
from rondel.types import EnvSpec, Network

PASSED_IN = "own:"  # begins the name of a network that was passed as an argument


def name_of(network: Any) -> str:
    """The name of a network that was passed as an argument, and must be passed again to resume."""
    return f"{PASSED_IN}{getattr(network, '__name__', type(network).__name__)}"


def is_own(kind: Any) -> bool:
    """Does this field of a Config name a network of the user's own?"""
    return isinstance(kind, str) and ":" in kind


def load(given: Any, spec: EnvSpec) -> Network:
    """The pair (init, apply) that is given, made by a function of the space, or either by path."""
    network = _imported(given) if isinstance(given, str) else given
    if callable(network):
        try:
            network = network(spec.observation)
        except Exception as error:
            raise OwnCodeError(
                f"{name_of(network)} can't make a network for observations "
                f"{described(zeros(spec.observation))}: {type(error).__name__}: {error}"
            ) from error
    pair = tuple(network) if isinstance(network, tuple | list) else ()
    if len(pair) != 2 or not all(map(callable, pair)):
        raise RondelError(
            "network must be a pair (init, apply), where init(key) gives parameters and "
            "apply(params, obs) features, or a function of the observation space that returns "
            f"such a pair, got {network!r}."
        )
    return Network(*pair)


def _imported(path: str) -> Any:
    """The object at "package.module:name"."""
    module, _, name = path.partition(":")
    try:
        found = import_module(module)
    except (ImportError, ValueError) as error:
        raise RondelError(
            f"network={path!r}: the module {module} can't be imported ({error}). Write a path to a "
            "network as package.module:name."
        ) from error
    if not hasattr(found, name):
        raise RondelError(f"network={path!r}: the module {module} has no {name!r}.")
    return getattr(found, name)
