"""A world: the record of where environments with ids come from, and the grammar of these ids.

"envpool:Pong-v5?episodic_life=true" is Pong-v5 of the world `envpool`, with an argument. Only the
registry names worlds; all else asks their records. Imports neither jax nor gymnasium.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

from rondel.envs.errors import NotAvailable
from rondel.errors import RondelError
from rondel.formatting import closest_words


class Equivalent(NamedTuple):
    """The same environment in another world."""

    id: str
    difference: str = ""  # in what is observed: ", which shows 84 x 84 grey pixels"


@dataclass(frozen=True)
class World:
    """What a world has and can do. Its functions take ids without the world's name."""

    name: str
    summary: str  # one line, for lists
    ids: Callable[[], Collection[str]]  # those to list; none while its package is not installed
    # gives an Env, a HostWorld, or an environment of Gymnasium; may raise UnknownId, NotAvailable
    make: Callable[[str], Any]
    # is an id its own, as far as that can be told before it is made; None if it can't. Arguments
    # that it refuses may leave an id to the next world. By default: one of `ids`
    has: Callable[[str], bool | None] | None = None
    library: str = ""  # the package that it needs beside Rondel's own
    install: str = ""  # the command that installs it
    builtin: bool = False  # tested with Rondel, so nothing is tried out or guarded
    draws: bool = False  # each of its environments has a picture
    picture_hint: str = ""  # how to get a picture of one that has none here
    threads: bool = False  # its lanes step in threads of their own
    on_host: str = ""  # the world with the same ids, stepped from Python
    # the environment here that is the same as one of Gymnasium's
    equivalent: Callable[[str], Equivalent | None] | None = None

    @property
    def installed(self) -> bool:
        """Whether its package is there."""
        return not self.library or is_installed(self.library)

    def owns(self, name: str) -> bool | None:
        """Whether an id is this world's; None if that is known only once it is made."""
        if self.has is not None:
            return self.has(name)
        return name.partition("?")[0] in self.ids() if self.installed else None

    def create(self, name: str) -> Any:
        """Make an environment; NotAvailable says how to install what is missing."""
        try:
            return self.make(name)
        except ImportError as error:
            how = f" ({self.install})" if self.install else ""
            needed = error.name or self.library or str(error)
            raise NotAvailable(f"{self.name}:{name} needs {needed}{how}.") from error


def is_installed(package: str) -> bool:
    """Whether a package could be imported."""
    return find_spec(package) is not None


def split(name: str) -> tuple[str, dict[str, Any]]:
    """Split an id from its arguments: numbers, true, false, null, else text.

    >>> split("Pong-v5?frame_skip=2&game=pong")
    ('Pong-v5', {'frame_skip': 2, 'game': 'pong'})
    """
    bare, mark, text = name.partition("?")
    arguments: dict[str, Any] = {}
    for part in text.split("&") if mark else ():
        key, equals, value = part.partition("=")
        if not (key.isidentifier() and equals):
            raise RondelError(
                f"Arguments in an id must be name=value with & between them, got {part!r} in "
                f"{name!r}. Write {bare}?frame_skip=4&reward_clip=false, for example."
            )
        arguments[key] = _value(value)
    return bare, arguments


def refuse_unknown(env_id: str, arguments: Collection[str], known: Collection[str]) -> None:
    """Refuse arguments that an environment doesn't have; say what was meant, or what there is."""
    unknown = sorted(set(arguments) - set(known))
    if not unknown:
        return
    meant = closest_words(unknown[0], known)
    there = f"It has {', '.join(sorted(known)) or 'none'}."
    hint = f"Did you mean {meant}?" if meant else there
    raise RondelError(f"{env_id} has no argument {', '.join(unknown)}. {hint}")


def _value(text: str) -> Any:
    try:
        return json.loads(text.lower() if text in ("True", "False") else text)
    except (ValueError, RecursionError):
        return text
