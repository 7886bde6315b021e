"""What a backend may leave behind: processes, threads, files, memory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Remains(NamedTuple):
    processes: set[int]  # children, zombies too
    threads: set[str]
    files: int
    arenas: int  # mapped here


def look() -> Remains:
    """All that this process has."""
    mine = os.getpid()
    children = Path(f"/proc/{mine}/task/{mine}/children").read_text().split()
    names = {thread.name for thread in threading.enumerate()}
    return Remains(set(map(int, children)), names, len(files()), maps().count("memfd:rondel"))


def files(pid: int | str = "self") -> dict[int, str]:
    """What is open in a process, by descriptor."""
    there = {}
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            there[int(fd.name)] = os.readlink(fd)
        except FileNotFoundError:  # the folder that was just looked at
            continue
    return there


def maps() -> str:
    return Path("/proc/self/maps").read_text()


def arena_sizes(pid: int) -> dict[int, int]:
    """The bytes that were written of every arena that a process knows, by its number."""
    arenas = [fd for fd, name in files(pid).items() if "memfd:rondel-arena" in name]
    stats = [os.stat(f"/proc/{pid}/fd/{fd}") for fd in arenas]  # a map is a descriptor too
    return {stat.st_ino: 512 * stat.st_blocks for stat in stats}


def resident(pid: int) -> int:
    """Bytes of memory that a process really uses."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def runs(pid: int) -> bool:
    """Is it there? One that only the system's first process can reap is not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def below(pid: int) -> set[int]:
    """All processes that a process has started, and those that they have."""
    found: set[int] = set()
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found |= {child} | below(child)
    return found


def eventually(true: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return true()
