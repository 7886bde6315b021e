"""The properties of an algorithm, for lists, the documentation and the defaults of a run."""

from __future__ import annotations

from typing import NamedTuple


def name_by_config(config: object) -> str:
    """The name of an algorithm of the table, given an instance of its `Config`."""
    return type(config).__module__.rpartition(".")[2].replace("_", "-")


class Card(NamedTuple):
    """What an algorithm needs and tolerates; its module states it as `CARD`.

    A custom algorithm needs no card: these defaults hold.
    """

    family: str = "custom"
    actions: str = "discrete, continuous"  # the kinds of actions
    paper: str = ""  # title and arXiv number
    plan: str = "all"  # the plan of its paper
    max_lag: int | None = 0  # most rounds by which the acting weights may be old; None: any
    lanes: int = 8  # environments side by side, by default
