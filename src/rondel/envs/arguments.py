"""Arguments of an environment in its id: "Pong-v5?episodic_life=true&frame_skip=2"."""

from __future__ import annotations

import json
from typing import Any

from rondel.errors import RondelError


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


def _value(text: str) -> Any:
    try:
        return json.loads(text.lower() if text in ("True", "False") else text)
    except (ValueError, RecursionError):
        return text
