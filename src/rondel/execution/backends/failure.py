"""An exception on its way to another process: the user's own, with where it came from."""

from __future__ import annotations

import pickle
import traceback

import cloudpickle  # type: ignore[import-untyped]

from rondel.errors import RondelError


def pack(error: BaseException, name: str) -> bytes:
    """An exception as bytes, with its cause and the traceback as text."""
    notes = list(getattr(error, "__notes__", []))
    if not notes:  # else it has come through here before, from where it was raised
        text = "".join(traceback.format_exception(error)).rstrip()
        notes = [f"In {name}.", f"There:\n{text}"]
    for parts in ((error, error.__cause__), (error, None), (_in_words(error), None)):
        try:
            packed: bytes = cloudpickle.dumps((*parts, notes), protocol=5)
            pickle.loads(packed)  # many can be written and not be read: their __init__ wants more
            return packed
        except Exception:
            continue
    return cloudpickle.dumps((RondelError(f"{type(error).__name__} in {name}"), None, notes))


def unpack(packed: bytes) -> BaseException:
    """The exception again, to be raised."""
    error, cause, notes = pickle.loads(packed)
    assert isinstance(error, BaseException)
    error.__notes__ = notes
    error.__cause__ = cause
    return error


def _in_words(error: BaseException) -> RondelError:
    return RondelError(f"{type(error).__name__}: {error}")
