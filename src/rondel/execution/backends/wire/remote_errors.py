"""Exceptions that are raised in another process than where they occurred.

A traceback can't be pickled; its text goes along in a note.
"""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from rondel.errors import RondelError


class Elsewhere(Exception):
    """An exception of another copy on its way through this one, still packed."""

    def __init__(self, packed: bytes) -> None:
        super().__init__(packed)
        self.packed = packed


def pack(error: BaseException, name: str) -> bytes:
    """An exception as bytes, with its cause, the copy that it comes from, and the traceback."""
    if isinstance(error, Elsewhere):
        return error.packed
    text = "".join(traceback.format_exception(error)).rstrip()
    notes = [f"In {name}.", *getattr(error, "__notes__", ()), f"There:\n{text}"]
    cause = None if error.__cause__ is None else _portable(error.__cause__)
    return pickle.dumps((_portable(error), cause, _words(error), notes))


def unpack(packed: bytes) -> BaseException:
    """The exception again, to be raised."""
    portable, cause, words, notes = pickle.loads(packed)
    try:
        error: BaseException = pickle.loads(portable)
        error.__cause__ = None if cause is None else pickle.loads(cause)
    except Exception:  # its class can't be imported here
        error = RondelError(words)
    error.__notes__ = notes
    return error


def _portable(error: BaseException) -> bytes:
    """As much of an exception as can be pickled: all of it, or its class, or its message."""
    for form in (error, _Bare(error)):
        packed = _pickled(form)
        if packed is not None:
            return packed
    return pickle.dumps(RondelError(_words(error)))


class _Bare:
    """An exception that is made again without its `__init__`, from what can be pickled of it."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> Any:
        error = self._error
        args = tuple(x if _pickled(x) else repr(x) for x in error.args)
        state = {name: x for name, x in vars(error).items() if _pickled(x)}
        return _made_again, (type(error), args, state)


def _made_again(kind: Any, args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    error: BaseException = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(state)
    return error


def _pickled(x: Any) -> bytes | None:
    try:
        packed: bytes = cloudpickle.dumps(x, protocol=5)
        pickle.loads(packed)  # many can be pickled but not unpickled: their __init__ needs more
        return packed
    except Exception:
        return None


def _words(error: BaseException) -> str:
    return traceback.format_exception_only(error)[0].strip()  # also where its str() fails
