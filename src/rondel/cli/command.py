"""What a command of the command line is: its options, the call of a function, and its output."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from typing import Annotated, Any, Literal, NamedTuple, TextIO, TypeAlias

import tyro

from rondel.cli.arguments import parse
from rondel.errors import RondelError
from rondel.execution.backends import registry

_PIPE_CLOSED = 141  # the exit status of a process that SIGPIPE ends

On: TypeAlias = Annotated[
    str | None, tyro.conf.arg(help_behavior_hint=lambda _: f"({' | '.join(registry.names())})")
]
# given once for each, so that it takes nothing of what follows
Log: TypeAlias = Annotated[tuple[Literal["tensorboard", "wandb"], ...], tyro.conf.UseAppendAction]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoadRun:
    """Options of all commands that load a run."""

    path: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PATH")]
    """the folder of a run, or one of its checkpoints"""
    env: str | None = None  # another environment, or your own again (module:name)
    algorithm: str | None = None  # module:function, if the run has an algorithm of your own
    network: str | None = None  # module:function, if the run has a network of your own


def parse_options(command: Command, argv: list[str]) -> Any:
    """The command's options; exits after `--help` and for what it doesn't take."""
    return parse_as(command.options, argv, command.name)


class Command(NamedTuple):
    """A command. `rondel --help` shows its usage and the first line of its options' docstring."""

    name: str
    usage: str  # what follows the name
    options: type[Any]  # a dataclass: each field is an option, its comment what help says of it
    run: Callable[[Any], None]  # gets what `parse` returns
    parse: Callable[[Command, list[str]], Any] = parse_options


def parse_as(kind: Any, argv: list[str], words: str) -> Any:
    """An instance of a dataclass; `words` are those of the command before its options."""
    with stdout_errors():  # `--help` prints there
        return parse(kind, argv, words)


def joined(**defaults: Any) -> Any:
    """One dataclass of several, with options for all their fields and the first one's docstring."""
    parts = [
        (name, Annotated[type(value), tyro.conf.arg(name="")], dataclasses.field(default=value))
        for name, value in defaults.items()
    ]
    doc = next(iter(defaults.values())).__doc__
    return dataclasses.make_dataclass("Joined", parts, namespace={"__doc__": doc})


def as_arguments(options: Any) -> dict[str, Any]:
    """Options as arguments of a public function; --json is for the command line alone."""
    return {name: value for name, value in dataclasses.asdict(options).items() if name != "json"}


def call(function: Callable[..., Any], options: Any) -> Any:
    """Call a public function: the first option is its first argument, the others are keywords."""
    (_, first), *others = as_arguments(options).items()
    with stdout_for_result():
        return function(first, **dict(others))


# Stdout, which holds the result of a command and nothing else.


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
