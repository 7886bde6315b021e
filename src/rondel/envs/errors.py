"""Errors of environments."""

from __future__ import annotations

from rondel.errors import OwnCodeError, RondelError


class EnvError(OwnCodeError):
    """An environment's own code raised.

    The sentence names the environment, the lane, its seed, the step of its episode and the last
    action.
    """


class UnknownId(RondelError):
    """A world has no such id."""


class NotAvailable(RondelError):
    """A world has the id, but can't make it here; the sentence says what is missing."""
