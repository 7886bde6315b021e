"""Fields of a `Config` given by name, checked before anything starts."""

from __future__ import annotations

import dataclasses
import difflib
import reprlib
import types
import typing
from typing import Any

from rondel.errors import RondelError

MOST = 2**40
"""No whole number of a run is beyond it, so that looking for what would work takes no age."""


def override_fields(config: Any, fields: dict[str, Any]) -> Any:
    """The config with some fields replaced; unknown names and wrong types get a sentence."""
    hints = typing.get_type_hints(type(config))
    names = [field.name for field in dataclasses.fields(config)]
    for name, value in fields.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}."
            raise RondelError(f"There is no field named {name!r} in {_owner(config)}; {hint}")
        if not fits(value, hints[name]):
            raise RondelError(
                f"{name}={reprlib.repr(value)} has the wrong type for {_owner(config)}: "
                f"it should be {_words(hints[name])}, such as {getattr(config, name)!r}."
            )
        for number in value if isinstance(value, tuple | list) else (value,):
            if isinstance(number, int) and abs(number) > MOST:
                raise RondelError(f"{name} can't be beyond {MOST:,}, and was to be {number:.3g}.")
    return dataclasses.replace(config, **{n: _as(v, hints[n]) for n, v in fields.items()})


def _owner(config: Any) -> str:
    return f"{type(config).__module__.rpartition('.')[2]}.{type(config).__name__}"


def fits(value: Any, hint: Any) -> bool:
    """Is a value of the type that a hint tells of? True and False are no numbers."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in typing.get_args(hint))
    if origin is tuple:
        inner = typing.get_args(hint)[0]
        return isinstance(value, tuple | list) and all(fits(x, inner) for x in value)
    if origin is dict:
        return isinstance(value, dict)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _as(value: Any, hint: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return float(value) if hint is float else value


def _words(hint: Any) -> str:
    if typing.get_origin(hint) is tuple:
        return f"several {typing.get_args(hint)[0].__name__}s"
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_words(part) for part in typing.get_args(hint))
    return "None" if hint is type(None) else f"{hint.__name__}"
