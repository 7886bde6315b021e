"""How many threads XLA has in a process, which it reads when JAX starts. It imports no jax.

Products of large matrices and loops over large arrays are shared among them, and what doesn't need
each other runs side by side. Small programs only pay for it. Large sums are split by their number,
so that all processes of a run have the same.
"""

from __future__ import annotations

import os
from pathlib import Path

_VARIABLE, _SECOND = "PJRT_NPROC", "NPROC"  # what XLA reads: the first that there is
_OURS = "RONDEL_NPROC"  # what `use` has put there, for programs too that this one starts


def of_user() -> int | None:
    """The number that whoever started this process wants, if they said one."""
    said = os.environ.get(_VARIABLE, "")
    if not said or said == os.environ.get(_OURS):
        said = os.environ.get(_SECOND, "")
    return max(1, int(said)) if said.isdecimal() else None


def use(number: int) -> None:
    """Let XLA have so many, here if JAX has not started yet, and in processes that this starts."""
    os.environ[_VARIABLE] = os.environ[_OURS] = str(number)


def forget() -> None:
    """Take back what `use` said."""
    if chosen() is not None:
        del os.environ[_VARIABLE], os.environ[_OURS]


def chosen() -> int | None:
    """What `use` said."""
    said = os.environ.get(_OURS)
    return int(said) if said and os.environ.get(_VARIABLE) == said else None


def apart(cache: Path, number: int) -> Path:
    """Where programs are kept that were compiled for so many: JAX can't tell them from others."""
    return cache / f"threads-{number}"
