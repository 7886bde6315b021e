"""What an algorithm says of itself: for lists, the documentation and the defaults of a run."""

from __future__ import annotations

from typing import NamedTuple


class Card(NamedTuple):
    """What an algorithm needs and tolerates; a module states it as `CARD`.

    A custom algorithm needs no card: these defaults hold.
    """

    family: str = "custom"
    actions: str = "discrete, continuous"  # the action spaces that it takes
    paper: str = ""  # title and arXiv number
    plan: str = "all"  # the plan that suits it, as its paper had it
    max_lag: int | None = 0  # how many rounds old the acting weights may be; None: any
    lanes: int = 8  # environments side by side, unless the run says otherwise
