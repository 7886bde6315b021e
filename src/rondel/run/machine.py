"""What a process sets before JAX starts: its threads, and where compiled programs are kept."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import jax

# XLA's sums depend on how many threads share them, and whether a product and a sum become one
# instruction, rounded once instead of twice, depends on what stands around them. One thread, and
# instructions without that one, give the same numbers everywhere.
_FLAGS = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
if platform.machine() in ("x86_64", "AMD64"):
    _FLAGS += " --xla_cpu_max_isa=AVX"
_MARK = "xla_cpu_multi_thread_eigen"


def settle() -> str:
    """Set up this process, unless its user has; returns the XLA flags that hold.

    The flags are read when JAX is first used: a program that used JAX before keeps its own.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if _MARK not in flags:
        os.environ["XLA_FLAGS"] = flags = f"{flags} {_FLAGS}".strip()
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rondel" / "xla"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return flags
