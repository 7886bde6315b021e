"""Small commands between two processes: pickled messages over a pair of Unix sockets.

A message is one packet: it comes whole or not at all, and `receive` takes exactly one, so a
selector over many channels never misses what waits in a buffer. What is too big for a packet
travels in an anonymous file whose descriptor is the packet; so two sides that send megabytes to
each other at once don't wait for each other. Only many unread messages do make a sender wait
(thousands of small ones, or as many as the system's net.core.wmem_max allows).
"""

from __future__ import annotations

import array
import os
import pickle
import socket
from collections.abc import Sequence
from typing import Any

from rondel.errors import RondelError

_PACKET = 32 * 1024  # bytes; well below what any socket buffer holds
_IN_FILE = b"file"  # in place of a message: the first descriptor holds it
_MORE = b"more"  # descriptors of the message that comes next
_RIGHTS = 250  # descriptors in one packet: the kernel takes a few more
_BUFFER = 4 * 1024 * 1024  # bytes that may wait unread; the kernel may grant less


class Gone(EOFError):
    """The other side closed the channel or died."""


class Channel:
    """One end. `peer` is what people call the other side."""

    def __init__(self, end: socket.socket, peer: str = "the other side") -> None:
        self._socket = end
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        self._early: list[int] = []  # descriptors of the message that comes next
        self.peer = peer

    @classmethod
    def from_fd(cls, fd: int, peer: str = "the other side") -> Channel:
        """The end that came as a descriptor, which it takes over."""
        return cls(socket.socket(fileno=fd), peer)

    def fileno(self) -> int:
        """For a selector: readable means that `receive` will not wait."""
        return self._socket.fileno()

    def close(self) -> None:
        """The other side reads what was sent, then finds this one gone."""
        self._socket.close()

    def send(self, message: Any, fds: Sequence[int] = (), timeout: float = 60.0) -> None:
        """Send what pickle can, and copies of descriptors with it."""
        data = pickle.dumps(message, protocol=5)
        while len(fds) >= _RIGHTS:
            self._send(_MORE, fds[:_RIGHTS], timeout)
            fds = fds[_RIGHTS:]
        if len(data) <= _PACKET:
            self._send(data, fds, timeout)
            return
        with open(os.memfd_create("rondel-message", os.MFD_CLOEXEC), "wb") as file:
            file.write(data)
            file.flush()
            self._send(_IN_FILE, [file.fileno(), *fds], timeout)

    def _send(self, packet: bytes, fds: Sequence[int], timeout: float) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self._socket.settimeout(timeout)
        try:
            self._socket.sendmsg([packet], rights)
        except (TimeoutError, BlockingIOError):
            raise RondelError(
                f"A message could not be sent: {self.peer} did not read the earlier ones "
                f"within {timeout:g} s. It hangs or is overloaded."
            ) from None
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Gone(f"{self.peer} is gone") from error

    def receive(self, timeout: float | None = None) -> Any:
        """The next message; raises Gone after the last one, TimeoutError if none comes in time."""
        message, fds = self.receive_fds(timeout)
        assert not fds, f"{self.peer} sent descriptors with a message that is to have none"
        return message

    def receive_fds(self, timeout: float | None = None) -> tuple[Any, list[int]]:
        """The next message and the descriptors that came with it, which are now the caller's."""
        packet, fds = self._receive(timeout)
        while packet == _MORE:
            self._early += fds
            packet, fds = self._receive(timeout)
        if packet == _IN_FILE:
            with open(fds.pop(0), "rb", buffering=0) as file:
                file.seek(0)
                packet = file.readall()
        fds, self._early = self._early + fds, []
        return pickle.loads(packet), fds

    def _receive(self, timeout: float | None) -> tuple[bytes, list[int]]:
        fds = array.array("i")
        self._socket.settimeout(timeout)
        try:
            packet, ancillary, flags, _ = self._socket.recvmsg(
                _PACKET, socket.CMSG_SPACE(_RIGHTS * fds.itemsize), socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            # It closed before it read all of ours. That comes before its own last words, once.
            return self._receive(timeout)
        except (TimeoutError, BlockingIOError):
            raise TimeoutError(f"{self.peer} sent nothing within {timeout:g} s") from None
        for _, _, data in ancillary:
            fds.frombytes(data)
        if flags & socket.MSG_CTRUNC:
            for fd in fds:
                os.close(fd)
            raise RondelError(
                f"Descriptors from {self.peer} were lost: this process has too many files open "
                "(ulimit -n)."
            )
        if not packet:
            raise Gone(f"{self.peer} is gone")
        return packet, list(fds)


def pair() -> tuple[Channel, Channel]:
    """Two ends that are connected with each other."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(one), Channel(other)
