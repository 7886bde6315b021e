"""What an environment was doing when its process died: a page of memory that outlives it.

The page is in a memory file that another process holds, or in a file on disk. That file also says
how the process ended: after a crash, Python's report of it follows the page; after an exit, the
page holds the exit code.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

SIZE = 4096
_HEAD = 64  # bytes: counter, lane, dtype and shape of actions or seeds, how the process exited
_EXITED, _CODE, _RESETS = 9, 10, 11  # in numbers of four bytes
_MOST_DIMS = 4


class Recorder:
    """The writer, in the process that may die. It holds one record: the step or reset under way.

    `lane` says which lane is at work: -1 if unknown, and -2 - lane for one that begins a new
    episode while the others step.
    """

    def __init__(self, fd: int) -> None:
        self._page = mmap.mmap(fd, SIZE)
        self._head = np.frombuffer(self._page, np.int32, _HEAD // 4)
        self.lane = memoryview(self._page)[4:8].cast("i")  # written by lanes that step in turn
        self._rows: dict[Any, np.ndarray] = {}  # where an action of a dtype and shape goes

    def enter(self, action: Any) -> None:
        """A step begins, with the actions of its lanes [b, ...]."""
        action = np.asarray(action)
        at = self._rows.get((action.dtype, action.shape))
        if at is None:
            at = self._place(action)
        if at.size:
            at[...] = action
        self.lane[0] = -1
        self._head[0] += 1

    def leave(self) -> None:
        """The step is over."""
        self._head[0] += 1

    @contextmanager
    def resetting(self, seeds: Any) -> Iterator[None]:
        """Record the begin of new episodes with these seeds [b]."""
        self._head[_RESETS] = 1
        self.enter(seeds)
        try:
            yield
        finally:
            self.leave()
            self._head[_RESETS] = 0

    def exit(self, code: int) -> None:
        """The process ends itself."""
        self._head[_CODE] = code
        self._head[_EXITED] = 1

    def _place(self, action: np.ndarray) -> np.ndarray:
        fits = action.nbytes <= SIZE - _HEAD and action.ndim <= _MOST_DIMS and action.size
        shape = action.shape if fits else (0,)
        self._page[8:16] = action.dtype.str.encode().ljust(8)[:8]
        self._head[4] = len(shape)
        self._head[5 : 5 + len(shape)] = shape
        size = int(np.prod(shape))
        at = np.frombuffer(self._page, action.dtype, size, _HEAD).reshape(shape)
        self._rows = {(action.dtype, action.shape): at}
        return at


def read(page: Any) -> str:
    """The step or reset in the bytes of a page: "step(3)", "reset(seed=3)", "" for none."""
    head = np.frombuffer(page, np.int32, _HEAD // 4)
    if head[0] % 2 == 0:
        return ""
    lane = int(head[1])
    if lane < -1:
        return "reset()"
    call, name = ("reset", "seed=") if head[_RESETS] else ("step", "")
    shape = tuple(int(n) for n in head[5 : 5 + int(head[4])])
    if not np.prod(shape):
        return f"{call}(…)"
    dtype = np.dtype(bytes(page[8:16]).decode().strip())
    rows = np.frombuffer(page, dtype, int(np.prod(shape)), _HEAD).reshape(shape)
    said = rows[lane] if 0 <= lane < len(rows) else rows
    return f"{call}({name}{np.array2string(np.asarray(said), separator=', ', threshold=64)})"


class Remains(NamedTuple):
    """What a dead process has left behind."""

    action: str = ""  # "step(3)", "reset(seed=3)", or "" for none or unknown
    ended: str = ""  # by itself: "crashed", "exited with 3"; "" if someone killed it


class File:
    """A page in a file on disk, with reports of crashes and exits."""

    def __init__(self, path: Path) -> None:
        self._path = path
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.ftruncate(fd, SIZE)
        self.recorder = Recorder(fd)
        os.close(fd)
        self._crash = path.open("ab")  # behind the page
        faulthandler.enable(self._crash, all_threads=False)
        self._exit = os._exit
        self._record_exits()

    def _record_exits(self) -> None:
        """From outside, a process that ends itself looks like one that was killed."""
        recorder, leave, mine = self.recorder, self._exit, os.getpid()

        def leave_with_a_word(status: int) -> NoReturn:
            if os.getpid() == mine:  # and not one that was forked here
                recorder.exit(status)
            leave(status)

        os._exit = leave_with_a_word

    def close(self) -> None:
        """Delete the file: the process ends properly."""
        os._exit = self._exit
        faulthandler.disable()
        self._crash.close()
        self._path.unlink(missing_ok=True)


def take(path: Path) -> Remains:
    """Read and delete the file that a process has left."""
    with suppress(OSError, ValueError):  # none here, or an incomplete one
        page = path.read_bytes()
        path.unlink()
        return Remains(read(page[:SIZE]), _ended(page))
    return Remains()


def _ended(page: bytes) -> str:
    if len(page) > SIZE:
        return "crashed"
    head = np.frombuffer(page, np.int32, _HEAD // 4)
    return f"exited with {head[_CODE]}" if head[_EXITED] else ""


def new_page() -> int:
    """The descriptor of an empty page without a name."""
    fd = os.memfd_create("rondel-crash", os.MFD_CLOEXEC)
    os.ftruncate(fd, SIZE)
    return fd
