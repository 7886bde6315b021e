"""Is there room for what a run keeps?"""

from __future__ import annotations

import os

from rondel.errors import RondelError


def check_fits_in_memory(
    held: int, what: str = "Memory", work: str = "a smaller capacity, rollout or number of lanes"
) -> None:
    """Refuse what takes so many bytes if this machine has less."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if held > there:
        raise RondelError(
            f"{what} would take {held / 2**30:.1f} GiB, but this machine has "
            f"{there / 2**30:.1f}: {work} would fit."
        )
