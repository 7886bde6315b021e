"""Suggestions for a misspelt id."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

_CLOSE = 0.6
_OLD_ATARI = re.compile(r"(NoFrameskip|Deterministic)-v\d+$")
_VERSION = re.compile(r"-v\d+$")


def suggest_ids(asked: str, ids: Mapping[str, str], n: int = 3) -> list[str]:
    """The values of `ids` whose lower-case keys are nearest to an id.

    >>> suggest_ids("PongNoFrameskip-v4", {"pong-v5": "envpool:Pong-v5", "ant-v5": "gym:Ant-v5"})
    ['envpool:Pong-v5']
    """
    sought = _OLD_ATARI.sub("-v5", asked).lower()
    if sought != asked.lower() and sought in ids:  # the game's new name
        return [ids[sought]]
    close = difflib.get_close_matches(sought, ids, n=2 * n, cutoff=_CLOSE)
    # in short names the version alone is half of the similarity
    alike = (name for name in close if _alike(*(_VERSION.sub("", x) for x in (sought, name))))
    return list(dict.fromkeys(ids[name] for name in alike))[:n]


def _alike(one: str, two: str) -> bool:
    return difflib.SequenceMatcher(None, one, two).ratio() >= _CLOSE
