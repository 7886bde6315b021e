"""What a process sets before JAX starts: its threads, and where compiled programs are kept."""

from __future__ import annotations

import os
from pathlib import Path

import jax

# XLA's sums depend on how many threads share them; one thread gives the same numbers everywhere.
_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
_THREAD_FLAG = "xla_cpu_multi_thread_eigen"


def settle(wanted: str = _ONE_THREAD) -> str:
    """Set up this process, unless its user has; returns the XLA flags that hold.

    The flags are read when JAX is first used: a program that used JAX before keeps its own.
    `wanted` are those of the run that is to go on.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if _THREAD_FLAG not in flags:
        flags = wanted if not flags else f"{flags} {_ONE_THREAD}"
        os.environ["XLA_FLAGS"] = flags
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rondel" / "xla"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return flags
