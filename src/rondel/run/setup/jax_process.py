"""What a process sets before JAX starts, where compiled programs are kept, and what it may use.

XLA reads its flags and its number of threads when JAX starts. It shares large products and loops
among its threads, which small programs only pay for. It splits large sums by their number, so all
processes of a run have the same: those that this one starts inherit it.
"""

from __future__ import annotations

import os
import platform
import zlib
from contextlib import suppress
from pathlib import Path

import jax
from jax._src import xla_bridge

# Without fused multiply-add, which rounds once instead of twice and which XLA uses depending on
# the surrounding code, a stage gives the same numbers in every plan.
_SAME_ROUNDING = "--xla_cpu_max_isa=AVX"
# Rows of a draw times numbers of the learner, from which several threads are faster than one
_LARGE = 20e6  # python benchmarks/threads.py
_THREADS, _FALLBACK = "PJRT_NPROC", "NPROC"  # XLA reads the first that is set
_CHOSEN = "RONDEL_NPROC"  # what Rondel has written into _THREADS


def configure_jax(work: float | None = None) -> str:
    """Set up this process, except for what its user has set.

    Returns what the last bits of a run depend on: flags and threads. If JAX has started, it keeps
    what it has. `work` is the size of a draw: XLA gets one thread for a small one, else one for
    each core.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_cpu_max_isa" not in flags and platform.machine() in ("x86_64", "AMD64"):
        os.environ["XLA_FLAGS"] = flags = f"{flags} {_SAME_ROUNDING}".strip()
    if "JAX_CPU_ENABLE_ASYNC_DISPATCH" not in os.environ:
        # calls run in their caller's thread: switching threads took half of a policy's time
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    _set_threads(work)
    _set_cache(number := configured_threads())
    return f"{flags} on {number} threads"


def configured_threads() -> int:
    """How many threads XLA has, or will have when JAX starts: at least one for each device."""
    devices = jax.config.values["jax_num_cpu_devices"]
    return max(_users_threads() or _chosen_threads() or cores(), devices)


def _set_threads(work: float | None) -> None:
    chosen = _chosen_threads()
    if _users_threads() is not None:
        if chosen is not None:  # by a program that started this one
            del os.environ[_THREADS], os.environ[_CHOSEN]
        return
    if has_started():
        chosen = chosen or cores()
    elif work is not None or chosen is None:
        chosen = cores() if work is None or work >= _LARGE else 1
    os.environ[_THREADS] = os.environ[_CHOSEN] = str(chosen)


def _users_threads() -> int | None:
    """The number of threads that the user has set."""
    text = os.environ.get(_THREADS, "")
    if not text or text == os.environ.get(_CHOSEN):
        text = os.environ.get(_FALLBACK, "")
    return max(1, int(text)) if text.isdecimal() else None


def _chosen_threads() -> int | None:
    """The number of threads that Rondel has set, here or in the process that started this one."""
    text = os.environ.get(_CHOSEN)
    return int(text) if text and os.environ.get(_THREADS) == text else None


def _set_cache(threads: int) -> None:
    """Keep compiled programs, unless the user has set where; JAX can't tell by itself for how many
    threads one was compiled, so each number has its folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rondel" / "xla"
    current = getattr(jax.config, "jax_compilation_cache_dir", None)
    if current is not None and Path(current).parent != cache:
        return
    if current is None:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    wanted = cache / f"threads-{threads}"
    if str(wanted) != current and not (current and has_started()):
        sweep(wanted)
        jax.config.update("jax_compilation_cache_dir", str(wanted))


def has_started() -> bool:
    """Has JAX looked for devices? From then on it keeps its threads."""
    return bool(xla_bridge.backends_are_initialized())


def request_devices(copies: int) -> None:
    """Have JAX see cores as devices, one for each copy, so that copies can be one program.

    It does nothing if there are fewer cores, JAX has started, or its user has set the number.
    """
    users = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if 1 < copies <= cores() and not users and jax.config.values["jax_num_cpu_devices"] < 1:
        with suppress(RuntimeError):  # JAX has started
            jax.config.update("jax_num_cpu_devices", copies)


def sweep(cache: Path) -> None:
    """Remove programs that a kill or a full disk has cut off: JAX never writes them again.

    It checks only those that are newer than the last sweep.
    """
    stamp = cache / ".looked-at"
    with suppress(OSError):  # only a cache
        since = stamp.stat().st_mtime_ns if stamp.exists() else 0
        for path in cache.glob("*-cache"):
            if path.stat().st_mtime_ns >= since and not _is_whole(path):
                path.unlink()
        if cache.exists():
            stamp.touch()


def _is_whole(path: Path) -> bool:
    data = path.read_bytes()
    if data[:1] != b"\x78":  # not zlib's: JAX takes zstandard where that is installed
        return len(data) > 0
    stream = zlib.decompressobj()
    try:
        stream.decompress(data)
    except zlib.error:
        return False
    return stream.eof


def cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def memory() -> int:
    """The bytes of memory of this machine, or of its container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of a control group
        with suppress(OSError, ValueError):  # there is none, or its limit is "max"
            total = min(total, int(Path("/sys/fs/cgroup", name).read_text()))
    return total


def free_memory() -> int:
    """The bytes of memory that are free or can be freed; 0 if the system doesn't tell."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(line for line in lines if line.startswith("MemAvailable:"))
        return min(int(free.split()[1]) * 1024, max(0, memory() - _used()))
    return 0


def _used() -> int:
    """The bytes that a container has used of its limit; 0 outside of one."""
    for name in ("memory.current", "memory/memory.usage_in_bytes"):
        with suppress(OSError, ValueError):
            return int(Path("/sys/fs/cgroup", name).read_text())
    return 0
