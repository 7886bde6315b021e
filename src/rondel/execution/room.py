"""Is there room for what a run keeps?"""

from __future__ import annotations

import os

from rondel.errors import RondelError


def refuse_too_much(held: int) -> None:
    """Refuse a memory of so many bytes if this machine has less."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if held > there:
        raise RondelError(
            f"Memory would take {held / 2**30:.1f} GiB, but this machine has "
            f"{there / 2**30:.1f}: a smaller capacity, rollout or number of lanes would fit."
        )
