"""The processes of a run, whatever their parents are by now, and what they hold.

Every process that is started after a `Census` inherits a mark in its environment. So copies whose
server has died, and which have another parent, are found too.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil

_MARK = "RONDEL_RELIABILITY"
_numbers = itertools.count()
_MIB = 2**20


def copies_of(run: Any) -> list[int]:
    """The known processes of a run's copies."""
    copies = list(run.ring.backend._copies)
    return [
        pid for copy in copies if (pid := getattr(copy, "pid", 0) or getattr(copy, "process", 0))
    ]


def servers_of(run: Any) -> list[int]:
    """The processes that start copies."""
    starter = getattr(run.ring.backend, "_launcher", None)
    return (
        [fork_server._server.pid for fork_server in list(starter.fork_servers.values())]
        if starter
        else []
    )


class Census:
    """The processes that this one has started since then, and theirs."""

    def __init__(self) -> None:
        self._mark = f"{os.getpid()}.{next(_numbers)}"
        os.environ[_MARK] = self._mark
        self.seen: set[psutil.Process] = set()  # each by its number and its birth
        self._lock = threading.Lock()
        self.strangers: set[int] = set()  # copies without the mark: then it proves nothing

    def is_marked(self, pid: int) -> bool:
        try:
            return psutil.Process(pid).environ().get(_MARK) == self._mark
        except psutil.Error:
            return False

    def look(self) -> list[psutil.Process]:
        """Those that live; zombies don't."""
        with self._lock:
            known = {process.pid for process in self.seen if process.is_running()}
            for process in psutil.process_iter():
                pid = process.pid
                with suppress(psutil.NoSuchProcess):
                    # some of Ray's own write their names over their environments
                    if pid in known or process.ppid() in known or self.is_marked(pid):
                        known.add(pid)
                        self.seen.add(process)
            return [process for process in self.seen if _lives(process)]

    def check(self, run: Any) -> None:
        """Are a run's own copies among them?"""
        for pid in (*copies_of(run), *servers_of(run)):
            with suppress(psutil.Error):
                # a process that is just ending has none at all
                if (environ := psutil.Process(pid).environ()) and environ.get(_MARK) != self._mark:
                    self.strangers.add(pid)

    def left(self, seconds: float = 15.0) -> tuple[list[psutil.Process], int]:
        """Those that still live after a time, and how many had to be continued first.

        A stopped process can't see that all is over: it must end once it is continued.
        """
        end, continued = time.monotonic() + seconds, 0
        while (there := self.look()) and time.monotonic() < end:
            for process in there:
                with suppress(psutil.Error):
                    if process.status() == psutil.STATUS_STOPPED:
                        process.send_signal(signal.SIGCONT)
                        continued += 1
            time.sleep(0.1)
        return there, continued

    def end(self) -> None:
        """Kill them all."""
        for process in self.look():
            with suppress(psutil.Error):
                process.kill()


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Sizes(NamedTuple):
    """What a run holds; memory in MiB, where what n processes share counts 1/n for each."""

    driver: float
    copies: float
    others: float  # servers, or Ray's own
    shared: float  # arenas, or Ray's stores: also a part of the above
    descriptors: int  # of the driver
    living: int  # copies, of those that there should be
    most: int  # descriptors of the copy that has most
    threads: int  # of the driver


def sizes(run: Any, census: Census) -> Sizes:
    me, there = psutil.Process(), census.look()
    census.check(run)
    pids = copies_of(run)
    copies = [process for process in there if process.pid in pids]
    others = [process for process in there if process.pid not in pids]
    fds = getattr(run.ring.backend, "_fds", None)
    shared = _stores(others) if fds is None else sum(512 * os.fstat(fd).st_blocks for fd in fds)
    return Sizes(
        _memory([me]),
        _memory(copies),
        _memory(others),
        shared / _MIB,
        me.num_fds(),
        len(copies),
        max(_each(psutil.Process.num_fds, copies), default=0),
        me.num_threads(),
    )


def _each(ask: Any, processes: Iterable[psutil.Process]) -> list[Any]:
    answers = []
    for process in processes:
        with suppress(psutil.Error):  # it may end meanwhile
            answers.append(ask(process))
    return answers


def _memory(processes: Iterable[psutil.Process]) -> float:
    return sum(full.pss for full in _each(psutil.Process.memory_full_info, processes)) / _MIB


def _stores(processes: Iterable[psutil.Process]) -> int:
    """Bytes that Ray's object stores really take: their files have no names."""
    total = 0
    for process in processes:
        with suppress(psutil.Error, OSError):
            if process.name() == "raylet":
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                total += sum(int(x.split()[1]) << 10 for x in lines if x.startswith("RssShmem"))
    return total


class Remains(NamedTuple):
    """What this process holds while nothing runs."""

    descriptors: int
    threads: int
    zombies: int
    arenas: int  # that are mapped here
    entries: int  # of /dev/shm: of everybody on this machine


def remains() -> Remains:
    me = psutil.Process()
    states = _each(psutil.Process.status, me.children())
    return Remains(
        me.num_fds(),
        me.num_threads(),
        states.count(psutil.STATUS_ZOMBIE),
        Path("/proc/self/maps").read_text().count("memfd:rondel"),
        len(os.listdir("/dev/shm")),
    )


def cpu_seconds(census: Census) -> float:
    """CPU seconds of this process and of all in a census so far."""
    times = _each(psutil.Process.cpu_times, [psutil.Process(), *census.look()])
    return sum(sum(each[:2]) for each in times)
