"""Errors that Rondel raises on purpose, and checks of fields."""

from __future__ import annotations

from collections.abc import Collection

from rondel.formatting import join_words


class RondelError(Exception):
    """An error that the user can fix: what is wrong, and what to use instead.

    The command line prints it without a traceback; Python code can catch it by this one name.
    """


class OwnCodeError(RondelError):
    """An error in the user's own code; `__cause__` is the original exception."""


def at_least(minimum: float, **fields: float | None) -> None:
    """Refuse fields below `minimum`; None passes."""
    for name, value in fields.items():
        if value is not None and not value >= minimum:
            raise RondelError(f"{name} must be {minimum} or more, got {value}.")


def from_zero_to_one(**fields: float) -> None:
    """Refuse fields outside of 0 to 1."""
    for name, value in fields.items():
        if not 0.0 <= value <= 1.0:
            raise RondelError(f"{name} must be from 0 to 1, got {value}.")


def one_of(choices: Collection[str], **fields: str) -> None:
    """Refuse fields whose values are not among `choices`."""
    for name, value in fields.items():
        if value not in choices:
            raise RondelError(f"{name} must be {join_words(choices, 'or')}, got {value!r}.")
