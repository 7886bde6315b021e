"""The words after a command: checked before tyro parses them, and shown by its --help.

What is wrong becomes a sentence for the person who typed it. Whole numbers may be written 1e5.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from rondel.errors import RondelError
from rondel.formatting import closest_words, join_words

_METAVARS = {int: "INT", float: "FLOAT", str: "STR"}
_ELSEWHERE = {  # names that other libraries use, and Rondel's
    "batch_size": "batch",
    "buffer_size": "capacity",
    "clip_range": "clip",
    "ent_coef": "entropy_cost",
    "gamma": "discount",
    "lr": "learning_rate",
    "n_envs": "lanes",
    "num_envs": "lanes",
    "total_timesteps": "steps",
    "vf_coef": "value_cost",
}


class Option(NamedTuple):
    """An option of a command, or one of its positional arguments."""

    name: str  # of its field
    shown: str  # "--steps", "PATH"
    kind: Any  # the type of a value; Any if there is a choice of types
    optional: bool  # None is a value too
    several: bool  # takes any number of values
    positional: bool
    required: bool


def wants_help(words: Collection[str]) -> bool:
    """Is a --help among the words?"""
    return bool({"-h", "--help"} & set(words))


def checked(kind: Any, words: Sequence[str], command: str) -> list[str]:
    """The words with whole numbers written out; a RondelError for what the options don't take."""
    if any(word.startswith("--tyro-") for word in words):  # shell completion
        return list(words)
    options = list(_options(kind))
    by_name = {option.name: option for option in options if not option.positional}
    places = [option for option in options if option.positional]
    rest, found = list(words), []
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            if not places:
                raise RondelError(f"`rondel {command}` takes no {word!r}. {_see(command)}")
            found.append(_value(places[0], word))
            places = places if places[0].several else places[1:]
            continue
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        option = by_name.get(name) or by_name.get(name.removeprefix("no_"))
        if option is None or (option.name != name and option.kind is not bool):
            raise RondelError(f"There is no option {flag}. {_meant(name, by_name, command)}")
        if option.kind is bool:
            if equals:
                raise RondelError(f"{flag} takes no value, got {value!r}.")
            found.append(word)
            continue
        values = [value] if equals else _values(option, rest)
        found += [flag, *(_value(option, one) for one in values)]
    if missing := [place.shown for place in places if place.required]:
        raise RondelError(f"`rondel {command}` needs {join_words(missing, 'and')}. {_see(command)}")
    return found


def for_help(kind: Any, value: Any = None) -> Any:
    """A dataclass for --help, which shows INT in place of {None}|INT and no "(default: None)".

    The comment of such a field says what its default is. `value` is an instance with the defaults.
    """
    hints = typing.get_type_hints(kind, include_extras=True)
    marked: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        default = field.default if value is None else getattr(value, field.name)
        hint, marks = _split(hints[field.name])
        if dataclasses.is_dataclass(hint):
            hint = for_help(hint, default)
            names = [each.name for each in dataclasses.fields(hint) if each.init]
            default = hint(**{name: getattr(default, name) for name in names})
        elif _without_none(hint)[1]:
            metavar = _METAVARS.get(_without_none(hint)[0])
            said = "" if default is None else None
            marks = [tyro.conf.arg(metavar=metavar, help_behavior_hint=said), *marks]
        else:
            continue
        marked[field.name], defaults[field.name] = Annotated[(hint, *marks)], default
    body = {"__annotations__": marked, "__doc__": kind.__doc__, "__module__": kind.__module__}
    made = type(kind.__name__, (kind,), body | defaults)
    return dataclasses.dataclass(frozen=kind.__dataclass_params__.frozen, kw_only=True)(made)


def _options(kind: Any) -> Iterator[Option]:
    """The options of a dataclass and of those in its fields."""
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        hint, marks = _split(hints[field.name])
        if dataclasses.is_dataclass(hint):
            yield from _options(hint)
            continue
        hint, optional = _without_none(hint)
        several = typing.get_origin(hint) in (tuple, list, set, frozenset, dict)
        if several:
            kinds = set(typing.get_args(hint)) - {...}
            hint = kinds.pop() if len(kinds) == 1 else Any
        elif optional and hint is bool:  # a word, not a pair of flags
            hint = Any
        several = several and tyro.conf.UseAppendAction not in marks
        positional = tyro.conf.Positional in marks
        shown = field.name.upper() if positional else f"--{field.name.replace('_', '-')}"
        absent = field.default is field.default_factory is dataclasses.MISSING
        yield Option(field.name, shown, hint, optional, several, positional, absent and not several)


def _split(hint: Any) -> tuple[Any, list[Any]]:
    """The type in an Annotated one, and what it is annotated with."""
    if typing.get_origin(hint) is not Annotated:
        return hint, []
    inner, *marks = typing.get_args(hint)
    return inner, marks


def _without_none(hint: Any) -> tuple[Any, bool]:
    """A type without None, and whether None was there; Any for a choice of several types."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 else Any, len(kinds) < len(typing.get_args(hint))


def _values(option: Option, rest: list[str]) -> list[str]:
    """Take an option's values from the words behind it."""
    values: list[str] = []
    while rest and not rest[0].startswith("--") and (option.several or not values):
        values.append(rest.pop(0))
    if not values and not option.several:
        raise RondelError(f"{option.shown} needs a value.")
    return values


def _value(option: Option, text: str) -> str:
    """A value as tyro takes it."""
    if option.optional and text == "None":
        return text
    if typing.get_origin(option.kind) is Literal and text not in typing.get_args(option.kind):
        choices = join_words(typing.get_args(option.kind), "or")
        raise RondelError(f"{option.shown} must be {choices}, got {text!r}.")
    try:
        if option.kind is int:
            return str(_whole(text))
        if option.kind is float:
            float(text)
    except (ValueError, OverflowError):
        what = "an integer" if option.kind is int else "a number"
        raise RondelError(f"{option.shown} must be {what}, got {text!r}.") from None
    return text


def _whole(text: str) -> int:
    """A whole number, such as 100000, 100_000 or 1e5."""
    try:
        return int(text)
    except ValueError:
        if float(text) != int(float(text)):
            raise
        return int(float(text))


def _meant(name: str, options: Mapping[str, Option], command: str) -> str:
    elsewhere = _ELSEWHERE.get(name, "")
    near = elsewhere if elsewhere in options else closest_words(name, options)
    return f"Did you mean {options[near].shown}?" if near else _see(command)


def _see(command: str) -> str:
    return f"`rondel {command} --help` lists what it takes."
