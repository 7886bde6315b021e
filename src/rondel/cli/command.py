"""What a command of the command line is, and how its options are parsed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import tyro

from rondel.cli.output import stdout_errors, stdout_for_result
from rondel.execution.backends import registry

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
    env: str | None = None  # another environment, or again your own as module:name
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
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)
    with stdout_errors():  # `--help` prints there
        return tyro.cli(kind, args=argv, prog=f"rondel {words}", config=config)


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
