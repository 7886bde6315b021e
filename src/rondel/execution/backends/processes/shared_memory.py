"""Trees of NumPy arrays in shared memory without a name, so that none is left behind.

One process writes to an arena, others map it by its descriptor. `encode` copies the arrays of a
tree into the arena and gives a small message that says where they are; the message goes by a
channel. Once a reader is done, the writer frees the places.
"""

from __future__ import annotations

import copyreg
import io
import mmap
import os
import pickle
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
from cloudpickle import cloudpickle as tracker

from rondel.types import Tree

Place: TypeAlias = tuple[int, int]  # offset and bytes
_SMALLEST = 1 << 20  # bytes of a new arena; untouched pages take no memory


class Message(NamedTuple):
    """A tree on its way: everything but the arrays, and where the arrays are."""

    skeleton: bytes
    places: tuple[Place, ...]


class Arena:
    """The memory that one process writes to; one thread at a time may use it."""

    def __init__(self, fd: int | None = None, live: Iterable[Place] = ()) -> None:
        """In a new memory file, or in one whose earlier writer is gone; takes over `fd`.

        What that one left and others still read is `live`; the pages of the rest are given back.
        """
        self.fd = os.memfd_create("rondel-arena", os.MFD_CLOEXEC) if fd is None else fd
        self._live = {offset: _rounded(nbytes) for offset, nbytes in live if nbytes}
        self._end = max((offset + size for offset, size in self._live.items()), default=0)
        self._free: dict[int, list[int]] = {}  # size: offsets
        self._map(max(_SMALLEST, os.fstat(self.fd).st_size))
        self._give_back()

    def _give_back(self) -> None:
        """Give back the pages on which nothing is live."""
        end = 0
        for offset, size in [*sorted(self._live.items()), (len(self._memory), 0)]:
            first, last = -(-end // mmap.PAGESIZE), offset // mmap.PAGESIZE
            if first < last:
                begin, length = first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE
                self._memory.madvise(mmap.MADV_REMOVE, begin, length)
            end = offset + size

    def _map(self, size: int) -> None:
        os.ftruncate(self.fd, size)
        self._memory = mmap.mmap(self.fd, size)

    def put(self, data: memoryview) -> Place:
        """Copy bytes into a free block."""
        if data.nbytes == 0:
            return 0, 0
        offset = self._allocate(_rounded(data.nbytes))
        self._memory[offset : offset + data.nbytes] = data
        return offset, data.nbytes

    def _allocate(self, size: int) -> int:
        if bin := self._free.get(size):
            offset = bin.pop()
        else:
            offset, self._end = self._end, self._end + size
            if self._end > len(self._memory):
                self._map(1 << (self._end - 1).bit_length())
        self._live[offset] = size
        return offset

    def free(self, places: Iterable[Place]) -> None:
        """Allow blocks to be written to again; views onto them become invalid."""
        for offset, nbytes in places:
            if nbytes == 0:
                continue
            size = self._live.pop(offset, None)
            assert size == _rounded(nbytes), f"nothing of {nbytes} bytes is at {offset} to free"
            self._free.setdefault(size, []).append(offset)

    def close(self) -> None:
        """Give back the memory; readers that map it keep it."""
        self._memory.close()
        os.close(self.fd)


class View:
    """A reader's map of another process's arena; takes over `fd`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._memory = memoryview(b"")

    def get(self, place: Place) -> memoryview:
        """The bytes at a place, read-only and not copied."""
        offset, nbytes = place
        if offset + nbytes > len(self._memory):  # the arena has grown; arrays keep the old map
            self._memory = memoryview(mmap.mmap(self.fd, 0, prot=mmap.PROT_READ))
        assert offset + nbytes <= len(self._memory), f"{place} is not in this arena"
        return self._memory[offset : offset + nbytes]

    def close(self) -> None:
        """Arrays that were not copied keep the memory until they are gone too."""
        self._memory = memoryview(b"")
        os.close(self.fd)


def encode(tree: Tree, arena: Arena) -> Message:
    """Copy the arrays of a tree into the arena. JAX arrays must be NumPy's by now."""
    try:
        skeleton, buffers = _pickle(pickle.Pickler, copyreg.dispatch_table, tree)
        plain = b"__main__" not in skeleton  # that is another module in another process
    except (pickle.PicklingError, AttributeError, TypeError):  # a class that can't be imported
        plain = False
    if not plain:
        skeleton, buffers = _pickle(_ClassesByValue, cloudpickle.Pickler.dispatch_table, tree)
    return Message(skeleton, tuple(arena.put(buffer.raw()) for buffer in buffers))


def decode(message: Message, view: View, copy: bool = False) -> Tree:
    """The tree again, with arrays that are read-only and valid until the writer frees them.

    With `copy` they are in fresh memory, and writable.
    """
    places = map(view.get, message.places)
    return pickle.loads(message.skeleton, buffers=map(bytearray, places) if copy else places)


def _rounded(nbytes: int) -> int:
    """The size of a block: a multiple of 64, and one of eight per doubling.

    Equal shapes find the blocks of their like, and shapes that vary find blocks at all.
    """
    step = max(64, (1 << nbytes.bit_length()) >> 4)
    return -(-nbytes // step) * step


def _pickle(kind: Any, reducers: Any, tree: Tree) -> tuple[bytes, list[pickle.PickleBuffer]]:
    file = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    pickler = kind(file, protocol=5, buffer_callback=buffers.append)
    pickler.dispatch_table = {**reducers, np.ndarray: _reduce_array}
    pickler.dump(tree)
    return file.getvalue(), buffers


def _reduce_array(x: np.ndarray[Any, Any]) -> Any:
    # NumPy itself would put what is not contiguous, and dtypes like bfloat16, into the skeleton.
    if x.dtype.hasobject or x.dtype.itemsize == 0:
        return x.__reduce_ex__(5)
    dtype = x.dtype.str if x.dtype.isbuiltin == 1 else x.dtype  # a text is quicker to read
    return _array, (pickle.PickleBuffer(x.ravel().view(np.uint8).data), dtype, x.shape)


def _array(buffer: Any, dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.ndarray(shape, dtype, buffer)


class _ClassesByValue(cloudpickle.Pickler):  # type: ignore[misc]
    """Sends classes that the reader can't import, in a way that is quick from the second time on.

    cloudpickle itself takes a millisecond per class and message, and on the way back it would
    replace the methods of the driver's own class by copies. Its ids of classes say who has it.
    """

    def reducer_override(self, x: Any) -> Any:
        if not isinstance(x, type):
            return super().reducer_override(x)
        if x not in _BY_VALUE:
            if super().reducer_override(x) is NotImplemented:  # it can be imported
                return NotImplemented
            _BY_VALUE[x] = cloudpickle.dumps(x, protocol=5)
        return _class, (tracker._get_or_create_tracker_id(x), _BY_VALUE[x])


_BY_VALUE: WeakKeyDictionary[type, bytes] = WeakKeyDictionary()


def _class(id: str, by_value: bytes) -> Any:
    known = tracker._DYNAMIC_CLASS_TRACKER_BY_ID.get(id)
    return pickle.loads(by_value) if known is None else known
