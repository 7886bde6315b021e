"""Clusters of Ray: started here, or joined."""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import ray
from ray.util import client

from rondel.errors import RondelError
from rondel.execution.backends.ray.resources import refuse_if_nobody_listens

_starting: int | None = None  # the thread that starts a cluster now


def _leave_the_group() -> None:
    """Keep a SIGTERM to the driver's group from Ray's processes, which end with the driver."""
    if _starting == threading.get_ident():
        with suppress(OSError):
            os.setpgid(0, 0)


os.register_at_fork(after_in_child=_leave_the_group)


def start_here(**options: Any) -> None:
    """Start a cluster on this machine, quietly."""
    global _starting
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    _starting = threading.get_ident() if sys.platform == "linux" else None
    try:
        join("local", include_dashboard=False, **options)
    finally:
        _starting = None


def join(address: str, **options: Any) -> None:
    """Become a driver of the cluster at an address."""
    refuse_if_nobody_listens(address)
    # One failure spoils many results; the driver hears of it once.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX warns of forks: what Ray forks only execs
            ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as error:  # Ray raises all kinds of them
        if address == "local":
            raise RondelError(f"Ray can't start here: {error}") from error
        raise RondelError(
            f"Can't join Ray at {address}: there is none, or RAY_AUTH_TOKEN is wrong: {error}"
        ) from error


def end_processes(agents: Iterable[int]) -> None:
    """Kill the cluster that was started here, of which a part is gone.

    Else its head, asked to end it properly, would tell the driver that its node is dead, and the
    raylet's agents would wait for a head that is not there.
    """
    node: Any = ray._private.worker._global_node
    node.kill_all_processes(check_alive=False)
    for pid in agents:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def is_client() -> bool:
    """Is this process outside of the cluster, as at ray://…? Then it has no part of Ray itself."""
    return bool(client.ray.is_connected())
