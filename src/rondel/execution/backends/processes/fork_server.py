"""A fork server: processes that start in milliseconds with the slow imports done.

Not `multiprocessing`: that runs the user's `__main__` again in every process. Here a server that
has imported `preload` and nothing else forks a child per request; it has neither threads of its own
nor a JAX backend. Children end with the driver, however that dies: the server kills them, and each
of them watches a socket whose other end only the driver holds.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from rondel.errors import RondelError
from rondel.execution.backends.wire.socket_channel import Channel, Gone, pair
from rondel.execution.telemetry import timeouts

_PATIENCE = 120.0  # seconds until a child must have started: imports may be slow
_SERVER = """import sys
sys.path[:] = sys.argv[5:]
from rondel.execution.backends.processes.fork_server import serve
serve(*sys.argv[1:5])"""


class SpawnFailed(RondelError):
    """The fork server is gone, or someone stopped it."""


class Child(NamedTuple):
    """A process that was started."""

    pid: int
    target: str


class _Started(NamedTuple):
    number: int  # of the request
    pid: int


class _Refused(NamedTuple):
    number: int
    reason: str


class _Ended(NamedTuple):
    pid: int
    code: int  # as subprocess has it: below zero for a signal


class ForkServer:
    """The driver's side; one thread at a time may use it."""

    def __init__(self, preload: Sequence[str] = ()) -> None:
        """Start the server; it imports `preload` while the driver goes on."""
        self._channel, requests = pair()
        self._life, life = socket.socketpair()
        self._alive: set[int] = set()
        self._ended: dict[int, str] = {}
        self._number = 0
        fds = (requests.fileno(), life.fileno())
        path = [entry for entry in sys.path if isinstance(entry, str)]
        args = [os.getpid(), *fds, ",".join(preload), *path]
        # Blocked until the server leaves them to the driver: they come to every process at once,
        # Ctrl-C from the terminal, SIGTERM from Slurm.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            self._server = subprocess.Popen(
                [sys.executable, "-c", _SERVER, *map(str, args)],
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            requests.close()
            life.close()

    def spawn(self, target: str, fds: Sequence[int] = (), payload: bytes = b"") -> Child:
        """Call target(fds, payload), "module:function", in a new process with copies of `fds`."""
        self._number += 1
        deadline = time.monotonic() + _PATIENCE
        try:
            self._channel.send((self._number, target, payload), fds)
            while True:
                notice = self._hear_unless_stopped(deadline)
                # Another number answers a request whose caller was interrupted while it waited.
                if isinstance(notice, _Started) and notice.number == self._number:
                    return Child(notice.pid, target)
                if isinstance(notice, _Refused) and notice.number == self._number:
                    raise RondelError(f"{target} can't start: {notice.reason}.")
        except TimeoutError:
            raise RondelError(
                f"{target} did not start within {_PATIENCE:g} s: imports hang, or the machine is "
                "out of memory."
            ) from None
        except Gone as gone:
            with suppress(subprocess.TimeoutExpired):
                self._server.wait(1.0)
            how = "is gone" if self._server.returncode is None else _say(self._server.returncode)
            raise SpawnFailed(
                f"{target} can't start: the fork server {how}; its own message, if any, is "
                "on stderr."
            ) from gone

    def is_alive(self) -> bool:
        """Can the server start more processes?"""
        return self._server.poll() is None

    def status(self, pid: int, timeout: float = 0.0) -> str | None:
        """How a child ended: "exited with 3", "was killed by SIGKILL"; None if unknown."""
        deadline = time.monotonic() + timeout
        with suppress(TimeoutError, Gone):
            while pid in self._alive:
                self._hear(deadline)
        return self._ended.get(pid)

    def close(self, timeout: float = 5.0) -> None:
        """Give children `timeout` seconds to end by themselves, then kill them."""
        if self._life.fileno() < 0:
            return
        deadline = time.monotonic() + timeout
        with suppress(TimeoutError, Gone):
            while self._alive:
                self._hear(deadline)
        self._alive.clear()
        self._channel.close()  # the server kills who is left, and ends
        try:
            self._server.wait(5.0)
        except subprocess.TimeoutExpired:  # it still imports, or was stopped
            self._server.kill()
            self._server.wait()
        if self._server.returncode != 0:  # its children have nobody but their lifeline
            self._life.shutdown(socket.SHUT_WR)
            self._life.settimeout(5.0)
            with suppress(TimeoutError):
                self._life.recv(1)  # ends when nobody holds the other end
        self._life.close()

    def _hear_unless_stopped(self, deadline: float) -> _Started | _Refused | _Ended:
        """The next notice of the server; raises `SpawnFailed` if someone has stopped it."""
        since = None
        while True:
            now = time.monotonic()
            since = (since or now) if is_stopped(self._server.pid) else None
            if since is not None and now - since >= timeouts.STOPPED:
                self._server.kill()
                self._server.wait()
                raise SpawnFailed("The fork server was stopped.")
            try:
                return self._hear(min(deadline, now + 1.0))
            except TimeoutError:
                if time.monotonic() >= deadline:
                    raise

    def _hear(self, deadline: float) -> _Started | _Refused | _Ended:
        """Receive one notice of the server."""
        notice = self._channel.receive(max(0.0, deadline - time.monotonic()))
        if isinstance(notice, _Started):
            self._alive.add(notice.pid)
            self._ended.pop(notice.pid, None)  # the system uses numbers again
        elif isinstance(notice, _Ended):
            self._alive.discard(notice.pid)
            self._ended[notice.pid] = _say(notice.code)
        return notice


def is_stopped(pid: int) -> bool:
    """Has someone stopped a process, with SIGSTOP or a debugger?"""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except OSError:
        return False


def _say(code: int) -> str:
    if code >= 0:
        return f"exited with {code}"
    names = {known.value: known.name for known in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"


def serve(driver: str, requests: str, life: str, preload: str) -> NoReturn:
    """The server: fork on request and report who ended, until the driver is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _ignore)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.set_inheritable(int(life), False)  # programs that children start are not to hold it
    del sys.argv[1:]
    for name in filter(None, preload.split(",")):
        import_module(name)
    gc.freeze()  # a collection would write to, and so copy, the pages that children share
    channel = Channel.from_fd(int(requests), "the driver")
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    events = select.poll()
    events.register(channel, select.POLLIN)
    events.register(woken, select.POLLIN)
    children: set[int] = set()
    try:
        # The channel stays open if a process that the user forked holds the driver's end too.
        while os.getppid() == int(driver):
            ready = dict(events.poll(1000))
            if woken in ready:
                os.read(woken, 4096)
                _reap(children, channel)
            if channel.fileno() in ready:
                (number, target, payload), fds = channel.receive_fds()
                _flush()
                try:
                    # JAX warns here once it has a backend, and rightly: its threads don't fork.
                    pid = os.fork()
                except OSError as error:
                    channel.send(_Refused(number, str(error)))
                else:
                    if pid == 0:
                        _run(target, fds, payload, int(life), (channel.fileno(), woken, wake))
                    children.add(pid)
                    channel.send(_Started(number, pid))
                for fd in fds:
                    os.close(fd)
    except Gone:
        pass
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)
    os._exit(0)


def _reap(children: set[int], channel: Channel) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        if pid in children:  # an import may have started others
            children.remove(pid)
            channel.send(_Ended(pid, os.waitstatus_to_exitcode(status)))


def _run(
    target: str, fds: list[int], payload: bytes, life: int, foreign: Sequence[int]
) -> NoReturn:
    """Run the target in the child, and end it."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _forks_can_be_ended()
        for fd in foreign:
            os.close(fd)
        threading.Thread(target=_die_with_driver, args=(life,), daemon=True).start()
        if random := sys.modules.get("numpy.random"):
            random.seed()  # else every child would draw the same numbers
        module, _, function = target.partition(":")
        getattr(import_module(module), function)(fds, payload)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            _flush()
        os._exit(code)


def _ignore(*_: Any) -> None:
    """A handler, as programs that are started would inherit SIG_IGN."""


def _forks_can_be_ended() -> None:
    """Let SIGTERM end what an environment forks, even if it comes at once."""

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    def in_child() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        unblock()

    os.register_at_fork(
        before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}),
        after_in_parent=unblock,
        after_in_child=in_child,
    )


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _die_with_driver(life: int) -> None:
    os.read(life, 1)
    os._exit(1)
