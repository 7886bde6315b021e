"""How many threads XLA has in a process, which it reads when JAX starts. It imports no jax.

Products of large matrices and loops over large arrays are shared among them, and what doesn't need
each other runs side by side. Small programs only pay for it. Large sums are split by their number,
so the copies that learn have the same number in every plan; those that only act have one, which
changes nothing: they sum nothing large, and there are many of them.
"""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path

VARIABLE = "PJRT_NPROC"
_OURS = "RONDEL_NPROC"  # what `use` has put there, for programs too that this one starts


def of_user() -> int | None:
    """The number that whoever started this process wants, if they said one."""
    for name in (VARIABLE, "NPROC"):
        said = os.environ.get(name, "")
        if said.isdecimal() and (name == "NPROC" or said != os.environ.get(_OURS)):
            return int(said)
    return None


def use(number: int) -> None:
    """Let XLA have so many, if JAX has not started yet."""
    os.environ[VARIABLE] = os.environ[_OURS] = str(number)


def chosen() -> int | None:
    """What `use` said."""
    said = os.environ.get(_OURS)
    return int(said) if said and os.environ.get(VARIABLE) == said else None


def of_copy(stages: Container[str]) -> int | None:
    """How many a copy of these stages has in a process of its own; None: as many as here."""
    return None if chosen() is None or "gradient" in stages else 1


def apart(cache: Path, number: int) -> Path:
    """Where programs are kept that were compiled for so many: JAX can't tell them from others."""
    return cache / f"threads-{number}"


def moved(cache: str | None, number: int) -> str | None:
    """The same folder for another number of threads, if it is one of `apart`."""
    here = Path(cache or "")
    return str(apart(here.parent, number)) if here.name.startswith("threads-") else cache
