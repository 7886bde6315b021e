"""What a process sets before JAX starts, and where compiled programs are kept."""

from __future__ import annotations

import os
import platform
import zlib
from contextlib import suppress
from pathlib import Path

import jax
from jax._src import xla_bridge

from rondel.execution.telemetry import xla_threads

# Whether XLA makes one instruction of a product and a sum, rounded once instead of twice, depends
# on what stands around them. Without that instruction a stage gives the same numbers in every plan.
_SAME_ROUNDING = "--xla_cpu_max_isa=AVX"
# Rows of a draw times numbers of the learner, from which on several threads are quicker than one
_LARGE = 20e6  # python benchmarks/threads.py


def configure_jax(work: float | None = None) -> str:
    """Set up this process, unless its user has; returns what a run's last bits depend on.

    XLA reads its flags when JAX is first used: a program that used JAX before keeps its own. How
    many threads it has depends on `work`, the size of a draw: one where that is small, else as many
    as there are cores. It splits large sums by their number, which so belongs to the answer.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_cpu_max_isa" not in flags and platform.machine() in ("x86_64", "AMD64"):
        os.environ["XLA_FLAGS"] = flags = f"{flags} {_SAME_ROUNDING}".strip()
    if "JAX_CPU_ENABLE_ASYNC_DISPATCH" not in os.environ:
        # a call in its caller's thread: handing it over and back took half of a policy's time
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    _settle_threads(work)
    _settle_cache(number := configured_threads())
    return f"{flags} on {number} threads"


def configured_threads() -> int:
    """How many threads XLA has here, or will have when JAX starts."""
    devices = jax.config.values["jax_num_cpu_devices"]  # it has one for each, at the least
    return max(xla_threads.of_user() or xla_threads.chosen() or cores(), devices)


def _settle_threads(work: float | None) -> None:
    """Say how many threads XLA has, unless its user has or it is too late."""
    if xla_threads.of_user() is not None:
        xla_threads.forget()  # what a program has said that started this one
    elif has_started():
        xla_threads.use(xla_threads.chosen() or cores())
    elif work is not None or xla_threads.chosen() is None:
        xla_threads.use(cores() if work is None or work >= _LARGE else 1)


def _settle_cache(number: int) -> None:
    """Keep compiled programs, unless the user has said where: apart by what XLA takes for equal."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rondel" / "xla"
    said = getattr(jax.config, "jax_compilation_cache_dir", None)
    if said is not None and Path(said).parent != cache:
        return
    if said is None:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    mine = xla_threads.apart(cache, number)
    if str(mine) != said and not (said and has_started()):
        sweep(mine)
        jax.config.update("jax_compilation_cache_dir", str(mine))


def has_started() -> bool:
    """Has JAX looked for devices? Then it keeps the threads that it has."""
    return bool(xla_bridge.backends_are_initialized())


def request_devices(copies: int) -> None:
    """Let JAX see the cores as so many devices, so that as many copies can be one program.

    Not if there are fewer cores, if JAX has started, or if its user has said how many there are.
    XLA then has as many threads, by which it splits sums.
    """
    said = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if 1 < copies <= cores() and not said and jax.config.values["jax_num_cpu_devices"] < 1:
        with suppress(RuntimeError):  # JAX has started
            jax.config.update("jax_num_cpu_devices", copies)


def sweep(cache: Path) -> None:
    """Remove programs that a kill or a full disk has cut off: JAX never writes them again.

    Only those are looked at that are newer than the last look.
    """
    stamp = cache / ".looked-at"
    with suppress(OSError):  # it is only a cache
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
    """The bytes of memory that this process can have at most: the machine's, or its container's."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # of a control group
        with suppress(OSError, ValueError):  # there is none, or it says "max"
            there = min(there, int(Path("/sys/fs/cgroup", name).read_text()))
    return there


def free_memory() -> int:
    """The bytes of it that are free, or can be freed; 0 where the system doesn't say."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(line for line in lines if line.startswith("MemAvailable:"))
        return min(int(free.split()[1]) * 1024, max(0, memory() - _used()))
    return 0


def _used() -> int:
    """The bytes that a container has used of its limit; 0 where there is none."""
    for name in ("memory.current", "memory/memory.usage_in_bytes"):
        with suppress(OSError, ValueError):
            return int(Path("/sys/fs/cgroup", name).read_text())
    return 0
