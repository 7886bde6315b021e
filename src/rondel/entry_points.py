"""Records of other packages, such as a backend or a world, each brought by an entry point.

A package names its record in a group, such as `rondel.worlds`; nothing is loaded until it is asked
for. Imports neither jax nor numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import entry_points
from typing import TypeVar

from rondel.errors import RondelError

_Record = TypeVar("_Record")


def names(group: str) -> list[str]:
    """The names in a group."""
    return [point.name for point in entry_points(group=group)]


def lines(names: Iterable[str], summary: Callable[[str], str]) -> list[str]:
    """A line for each name, with a summary of its record; that of a broken one says why."""

    def line(name: str) -> str:
        try:
            return summary(name)
        except RondelError as error:
            return str(error)

    return [f"{name:12} {line(name)}" for name in names]


@cache
def load(group: str, name: str, kind: type[_Record]) -> _Record | None:
    """Load the record of that name; None if no package brings one.

    A record that can't be used is a RondelError with the name of its package.
    """
    point = next((point for point in entry_points(group=group) if point.name == name), None)
    if point is None:
        return None
    package = point.dist.name if point.dist else point.module
    what = f"{group.removeprefix('rondel.').rstrip('s').capitalize()} {name!r}"
    try:
        record = point.load()
    except Exception as error:
        raise RondelError(
            f"{what} of the package {package} can't be loaded: {type(error).__name__}: {error}. "
            "Repair or uninstall that package."
        ) from error
    if not isinstance(record, kind) or getattr(record, "name", None) != name:
        raise RondelError(
            f"{what} of the package {package} is unusable: {point.value} must be a "
            f"{kind.__name__} of that name, got {record!r:.80}."
        )
    return record
