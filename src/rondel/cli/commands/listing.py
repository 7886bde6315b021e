"""`list`: which algorithms, backends, worlds and environments there are."""

from __future__ import annotations

import dataclasses
from fnmatch import fnmatchcase
from typing import Annotated, Literal, TypeAlias, get_args

import tyro

from rondel.algorithms import catalogue
from rondel.cli.command import Command, print_lines
from rondel.envs import registry as worlds
from rondel.errors import RondelError
from rondel.execution.backends import registry

What: TypeAlias = Literal["algorithms", "backends", "worlds", "envs"]
LISTS = get_args(What)


@dataclasses.dataclass(frozen=True)
class List:
    """List algorithms, backends, worlds or environments."""

    what: tyro.conf.Positional[What]  # what to list
    pattern: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[PATTERN]")] = ""
    """of environments, a part of the id, such as `pole`, or a pattern, such as 'gymnasium:*-v5'"""


def _list(options: List) -> None:
    if options.pattern and options.what != "envs":
        raise RondelError(
            f"`rondel list {options.what}` takes no pattern; `rondel list envs` does."
        )
    match options.what:
        case "algorithms":
            print_lines(map(_algorithm, catalogue.TABLE))
        case "backends":
            print_lines(registry.listing())
        case "worlds":
            print_lines(worlds.listing())
        case "envs":
            print_lines(_ids(options.pattern))


def _ids(pattern: str) -> list[str]:
    """Environments whose id contains `pattern`, or matches it if it has a * or the like."""
    ids = [f"{world}:{name}" for world, names in worlds.known_ids().items() for name in names]
    glob = pattern.lower() if set(pattern) & set("*?[") else f"*{pattern.lower()}*"
    if found := [one for one in ids if fnmatchcase(one.lower(), glob)]:
        return found
    raise RondelError(
        f"None of {len(ids):,} environments matches {pattern!r}. Use a part of an id, such as "
        "`pole`, or a pattern, such as 'gymnasium:*-v5'."
    )


def _algorithm(name: str) -> str:
    found = catalogue.find(name)
    card = found.card
    lag = "any lag" if card.max_lag is None else f"lag up to {card.max_lag}"
    memory = "recurrent" if found.recurrent else ""
    facts = f"{card.family:13} {card.actions:21} {memory:10} {lag:12}"
    return f"{name:10} {facts} `{card.plan}`  {card.paper}"


COMMANDS = (Command("list", "WHAT [PATTERN]", List, _list),)
