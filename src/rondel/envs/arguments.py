"""Arguments of an environment in its id: "Pong-v5?episodic_life=true&frame_skip=2"."""

from __future__ import annotations

import json
from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

from rondel.errors import RondelError

OF_GAMES = ("opponent", "simulations")  # of games for two, ours and pgx's


def split(name: str) -> tuple[str, dict[str, Any]]:
    """The id alone, and its arguments: numbers, true, false, null, else text.

    >>> split("Pong-v5?frame_skip=2&game=pong")
    ('Pong-v5', {'frame_skip': 2, 'game': 'pong'})
    """
    bare, mark, text = name.partition("?")
    arguments: dict[str, Any] = {}
    for part in text.split("&") if mark else ():
        key, equals, value = part.partition("=")
        if not (key.isidentifier() and equals):
            raise RondelError(
                f"{part!r} in {name!r} is no argument: write name=value, with & between several, "
                f"such as {bare}?frame_skip=4&reward_clip=false."
            )
        arguments[key] = _value(value)
    return bare, arguments


def refuse_unknown(env_id: str, arguments: Collection[str], known: Collection[str]) -> None:
    """Name arguments that an environment doesn't have, and what was meant or is there."""
    unknown = sorted(set(arguments) - set(known))
    if not unknown:
        return
    meant = nearest(unknown[0], known)
    there = f"there are: {', '.join(sorted(known)) or 'none'}."
    hint = f"did you mean {meant}?" if meant else there
    raise RondelError(f"{env_id} has no argument {', '.join(unknown)}; {hint}")


def nearest(argument: str, known: Collection[str]) -> str:
    """The known argument that is nearly written so; "" if there is none."""
    return next(iter(get_close_matches(argument, known, n=1)), "")


def _value(text: str) -> Any:
    try:
        return json.loads(text.lower() if text in ("True", "False") else text)
    except (ValueError, RecursionError):
        return text
