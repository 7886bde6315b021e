"""The table of algorithms, and the lookup of custom ones: "module:make", a module or a function."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from rondel.algorithms.card import Card
from rondel.errors import OwnCodeError, RondelError
from rondel.formatting import closest_words, described
from rondel.types import Algorithm

_NAMES = """
    ppo dqn ddpg td3 sac qtopt apex-ddpg c51 qrdqn rainbow apex
    gorila r2d2 r2d3 pg a2c a3c impala appo es ars alphazero
"""
TABLE = {name: f"rondel.algorithms.{name.replace('-', '_')}" for name in _NAMES.split()}


class Entry(NamedTuple):
    """An algorithm with its fields and card."""

    name: str  # as in the table; of a custom one "module:function"
    make: Callable[..., Algorithm]  # (config, spec), and perhaps network, demonstrations, model
    config: type[Any] | None  # the dataclass of its fields, the `Config` beside `make`
    card: Card  # the `CARD` beside `make`
    summary: str  # the first line of its module

    @property
    def recurrent(self) -> bool:
        """Can its policy be recurrent?"""
        return "memory" in getattr(self.config, "__dataclass_fields__", {})


def find(algorithm: str | ModuleType | Callable[..., Algorithm]) -> Entry:
    """Look up a name of the table, "module:function", "module", a module or a function.

    Modules are found on sys.path, to which the command line adds the current directory. The default
    function is `make`.
    """
    if isinstance(algorithm, str):
        path, _, name = TABLE.get(algorithm, algorithm).partition(":")
        module, name = _imported(path, algorithm), name or "make"
    elif isinstance(algorithm, ModuleType):
        module, name = algorithm, "make"
    elif callable(algorithm):
        module = inspect.getmodule(algorithm) or ModuleType("__main__")
        name = getattr(algorithm, "__name__", type(algorithm).__name__)
    else:
        raise RondelError(
            f"algorithm must be a name, a module or a function, got {algorithm!r}. Use one of "
            f"{', '.join(TABLE)}, or your own make(config, spec)."
        )
    make = algorithm if callable(algorithm) else getattr(module, name, None)
    if make is None:
        raise RondelError(f"The module {module.__name__} has no function {name!r}.")
    config = getattr(module, "Config", None)
    return Entry(
        full_name := _name_of(module, name, make),
        _checked(make, full_name),
        config if isinstance(config, type) and dataclasses.is_dataclass(config) else None,
        getattr(module, "CARD", Card()),
        (inspect.getdoc(module) or "").partition("\n")[0],
    )


def _imported(path: str, asked: str) -> ModuleType:
    try:
        if all(part.isidentifier() for part in path.split(".")):
            return import_module(path)
    except ModuleNotFoundError as error:
        if not f"{path}.".startswith(f"{error.name}."):  # an import inside of the module failed
            raise _broken(path, error) from error
    except Exception as error:
        raise _broken(path, error) from error
    if ":" in asked:
        raise RondelError(
            f"Module {path!r} of algorithm {asked!r} not found. It must be in the current "
            "directory or elsewhere on sys.path."
        )
    near = closest_words(asked, TABLE)
    hint = f"Did you mean {near}?" if near else f"Use one of {', '.join(TABLE)}."
    raise RondelError(f"Unknown algorithm {asked!r}. {hint} Your own is module:function.")


def _broken(path: str, error: Exception) -> RondelError:
    return OwnCodeError(f"Importing the module {path} failed: {type(error).__name__}: {error}")


def _name_of(module: ModuleType, name: str, make: Any) -> str:
    if module.__name__ == "__main__" or getattr(module, name, None) is not make:
        return f"own:{name}"  # it cannot be imported
    names = {path: name for name, path in TABLE.items()}
    return names.get(module.__name__, f"{module.__name__}:{name}")


def _checked(make: Any, name: str) -> Callable[..., Algorithm]:
    """The function, if it can be called with (config, spec)."""
    try:
        signature = inspect.signature(make)
        optional = {"network", "demonstrations", "model"} & signature.parameters.keys()
        signature.bind(None, None, **dict.fromkeys(optional))
    except (TypeError, ValueError) as error:
        wrong = f", got {described(make)}" if isinstance(make, ModuleType) else f": {error}"
        raise RondelError(f"{name} must be a function of (config, spec){wrong}.") from error
    checked: Callable[..., Algorithm] = make
    return checked
