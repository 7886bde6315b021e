"""Stdout, which holds a command's result and nothing else."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from typing import Any, TextIO

from rondel.errors import RondelError

_PIPE_CLOSED = 141  # the exit status of a process that SIGPIPE ends


def print_lines(lines: Iterable[str]) -> None:
    with stdout_errors():
        print(*lines, sep="\n")


def print_result(result: dict[str, Any], as_json: bool) -> None:
    """A result in lines "name value", or as one JSON object."""
    lines = (
        f"{name:17} {value:.6g}" if isinstance(value, float) else f"{name:17} {value}"
        for name, value in result.items()
        if value is not None and name != "runs"  # unknown, or printed already
    )
    print_lines([json.dumps(result)] if as_json else lines)


@contextmanager
def stdout_for_result() -> Iterator[None]:
    """Send all that is printed in this block to stderr.

    Environments print, and so does Ray; other processes and C code write to descriptor 1.
    """
    with ExitStack() as undo:
        with suppress(OSError):  # one of the two is closed
            sys.stdout.flush()
            results = os.dup(1)
            undo.callback(os.close, results)
            os.dup2(2, 1)
            undo.callback(os.dup2, results, 1)
            undo.callback(ctypes.CDLL(None).fflush, None)  # what C has buffered
            if sys.__stdout__ is not None:  # what was printed by code that kept a reference to it
                undo.callback(sys.__stdout__.flush)
        undo.enter_context(redirect_stdout(sys.stderr))
        yield


@contextmanager
def stdout_errors() -> Iterator[None]:
    """Handle a reader of stdout that has gone, and a full disk."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:  # as with `| head`: nobody wants the rest
        discard(sys.stdout)
        raise SystemExit(_PIPE_CLOSED) from None
    except OSError as error:
        discard(sys.stdout)
        raise RondelError(f"The result can't be printed: {error.strerror}.") from None


def discard(stream: TextIO) -> None:
    """Write no more: what is buffered would fail again, with a traceback, when Python exits."""
    with suppress(OSError, ValueError):  # it may have no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
