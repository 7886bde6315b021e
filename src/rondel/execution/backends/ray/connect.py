"""Clusters of Ray: started here, or joined."""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from contextlib import suppress
from typing import Any

import ray
from ray.util import client

from rondel.errors import RondelError
from rondel.execution.backends.ray.resources import refuse_if_nobody_listens

_starts: int | None = None  # the thread that does


def _leave_the_group() -> None:
    """A SIGTERM to all of its group is for the driver; Ray's processes end with that."""
    if _starts == threading.get_ident():
        with suppress(OSError):
            os.setpgid(0, 0)


os.register_at_fork(after_in_child=_leave_the_group)


def start_here(**options: Any) -> None:
    """Start a cluster on this machine, quietly."""
    global _starts
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    _starts = threading.get_ident() if sys.platform == "linux" else None
    try:
        join("local", include_dashboard=False, **options)
    finally:
        _starts = None


def join(address: str, **options: Any) -> None:
    """Become a driver of the cluster at an address."""
    refuse_if_nobody_listens(address)
    # A failure reaches the driver once; what else it spoiled on its way need not be told.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX warns of forks: what Ray forks only execs
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # Ray raises all kinds of them
        if address == "local":
            raise RondelError(f"Ray can't start here: {error}") from error
        raise RondelError(
            f"There is no Ray at {address}, or it wants a token that RAY_AUTH_TOKEN does not "
            f"give: {error}"
        ) from error


def is_client() -> bool:
    """Is this process outside of the cluster, as at ray://…? Then it has no part of Ray itself."""
    return bool(client.ray.is_connected())
