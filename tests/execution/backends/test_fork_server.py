"""Children start, are told of, and never outlive the driver: with real processes and kills."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest

from rondel.errors import RondelError
from rondel.execution.backends.processes.fork_server import ForkServer, is_stopped
from rondel.execution.backends.wire.socket_channel import Channel, Gone, pair

pytestmark = pytest.mark.fault

# What children do. The server imports this module once, by preload.


def echo(fds, payload):
    """Answer until the driver closes; the payload comes first."""
    driver = Channel.from_fd(fds[0])
    with suppress(Gone):
        driver.send(payload)
        while True:
            driver.send(driver.receive())


def report(fds, payload):
    driver = Channel.from_fd(fds[0])
    driver.send(
        {
            "files": {int(fd): os.readlink(f"/proc/self/fd/{fd}") for fd in _files("self")},
            "passed": fds[0],
            "inherited": [int(fd) for fd in _files("self") if os.get_inheritable(int(fd))],
            "signals": {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGCHLD)},
            "argv": sys.argv,
            "path": sys.path,
            "draws": (random.random(), np.random.random()),  # noqa: NPY002
        }
    )


def fail(fds, payload):
    raise ValueError("the user's own words")


def leave(fds, payload):
    os._exit(3)


def sleep(fds, payload):
    time.sleep(1000)


def start_others(fds, payload):
    forked = os.fork()
    if not forked:
        time.sleep(1000)
    started = subprocess.Popen(["sleep", "1000"])
    os.kill(os.getpid(), signal.SIGTERM)
    for pid in (forked, started.pid):
        os.kill(pid, signal.SIGTERM)
    codes = os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]), started.wait(20)
    Channel.from_fd(fds[0]).send(codes)


def sum_on_jax(fds, payload):
    assert "jax" in sys.modules, "not preloaded"
    import jax.numpy as jnp
    from jax._src import xla_bridge

    assert not xla_bridge.backends_are_initialized()
    Channel.from_fd(fds[0]).send(float(jnp.arange(10.0).sum()))


# What tests look with.


def _files(pid):
    return [fd for fd in os.listdir(f"/proc/{pid}/fd") if os.path.lexists(f"/proc/{pid}/fd/{fd}")]


def _children():
    mine = os.getpid()
    return set(Path(f"/proc/{mine}/task/{mine}/children").read_text().split())


def _runs(pid):
    """Not even a zombie is left, or one that only the system's first process can reap."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _eventually(true, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return true()


@pytest.fixture(scope="module")
def fork_server():
    with closing(ForkServer([__name__, "numpy.random"])) as fork_server:
        yield fork_server


@pytest.fixture
def fresh():
    """One that a test may break."""
    with closing(ForkServer([__name__])) as fork_server:
        yield fork_server


def _start(fork_server, function, payload=b""):
    """A child of this module, and the channel to it."""
    mine, theirs = pair()
    with closing(theirs):
        child = fork_server.spawn(f"{__name__}:{function}", [theirs.fileno()], payload)
    return child, mine


@pytest.mark.parametrize("size", [0, 5, 20_000_000])
def test_a_child_gets_its_payload_and_files(fork_server, size):
    child, channel = _start(fork_server, "echo", b"x" * size)
    with closing(channel):
        assert channel.receive(30) == b"x" * size
        channel.send("hello")
        assert channel.receive(10) == "hello"
        assert fork_server.status(child.pid) is None
    assert fork_server.status(child.pid, 10) == "exited with 0"


def test_a_child_starts_clean(fork_server):
    (one, _), (other, _) = (_report(fork_server), _report(fork_server))
    own = {1, 2, one["passed"]}
    kinds = {fd: what.partition(":")[0] for fd, what in one["files"].items() if fd not in own}
    assert kinds.pop(0) == "/dev/null"
    assert list(kinds.values()) == ["socket"]  # the lifeline
    assert sorted(one["inherited"]) == [0, 1, 2]  # by programs that it starts
    assert one["signals"] == {signal.SIGINT: signal.SIG_IGN, signal.SIGCHLD: signal.SIG_DFL}
    assert one["argv"] == ["-c"]
    assert one["path"] == sys.path
    for mine, theirs in zip(one["draws"], other["draws"], strict=True):
        assert mine != theirs


def _report(fork_server):
    child, channel = _start(fork_server, "report")
    with closing(channel):
        return channel.receive(30), child


def test_what_fails_is_printed(capfd):
    with closing(
        ForkServer([__name__])
    ) as fork_server:  # not a fixture: capfd starts with the test
        for target, words in ((f"{__name__}:fail", "the user's own words"), ("no:run", "'no'")):
            child = fork_server.spawn(target)
            assert fork_server.status(child.pid, 30) == "exited with 1"
            printed = capfd.readouterr().err
            assert "Traceback" in printed
            assert words in printed


def test_exit_status_in_words(fork_server):
    child, channel = _start(fork_server, "leave")
    channel.close()
    assert fork_server.status(child.pid, 30) == "exited with 3"


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_killed_child_is_told_of(fork_server, kill):
    child, channel = _start(fork_server, "echo")
    with closing(channel):
        channel.receive(30)
        os.kill(child.pid, kill)
        with pytest.raises(Gone):
            channel.receive(10)
    assert fork_server.status(child.pid, 10) == f"was killed by {kill.name}"
    assert fork_server.status(child.pid + 1) is None


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_wish_to_stop_is_the_drivers_alone(signum):
    with closing(ForkServer([__name__])) as fork_server:
        os.kill(fork_server._server.pid, signum)  # before it has run a line
        child, channel = _start(fork_server, "echo")
        with closing(channel):
            channel.receive(30)
            os.kill(fork_server._server.pid, signum)
            os.kill(child.pid, signum)
            channel.send("still there")
            assert channel.receive(10) == "still there"
        assert signum not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_what_a_child_starts_can_be_ended(fork_server):
    _, channel = _start(fork_server, "start_others")
    with closing(channel):
        assert channel.receive(30) == (-signal.SIGTERM, -signal.SIGTERM)


def test_many_spawns_keep_no_files(fork_server):
    def spawn_and_end():
        child, channel = _start(fork_server, "echo")
        channel.close()
        assert fork_server.status(child.pid, 30) == "exited with 0"
        return child.pid

    spawn_and_end()
    server = fork_server._server.pid
    before = len(_files("self")), len(_files(server))
    pids = [spawn_and_end() for _ in range(50)]
    assert (len(_files("self")), len(_files(server))) == before
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_close_leaves_nothing():
    files, processes = len(_files("self")), _children()
    fork_server = ForkServer([__name__])
    sleeping, channel = _start(fork_server, "sleep")
    channel.close()
    stopped, channel = _start(fork_server, "sleep")
    channel.close()
    os.kill(stopped.pid, signal.SIGSTOP)
    ends_itself, channel = _start(fork_server, "echo")
    channel.close()
    fork_server.close(timeout=0.5)
    fork_server.close()
    assert fork_server.status(ends_itself.pid) == "exited with 0"
    for pid in (sleeping.pid, stopped.pid, ends_itself.pid, fork_server._server.pid):
        assert not os.path.exists(f"/proc/{pid}")
    assert (len(_files("self")), _children()) == (files, processes)


def test_close_gives_children_time(fresh):
    child, channel = _start(fresh, "echo")
    channel.receive(30)
    assert fresh.status(child.pid) is None
    channel.close()
    fresh.close(timeout=10)
    assert fresh._ended == {child.pid: "exited with 0"}


def test_close_while_the_server_still_imports():
    processes = _children()
    fork_server = ForkServer(["rondel.nowhere"])
    fork_server.close()
    assert _children() == processes


def test_a_dead_server_is_noticed_and_its_children_end(fresh):
    child, channel = _start(fresh, "echo")
    channel.receive(30)
    os.kill(fresh._server.pid, signal.SIGKILL)
    with pytest.raises(RondelError, match="the fork server was killed by SIGKILL"):
        fresh.spawn(f"{__name__}:echo")
    assert fresh.status(child.pid, 0.1) is None
    channel.send("the child lives on")
    assert channel.receive(10) == "the child lives on"
    os.kill(child.pid, signal.SIGSTOP)
    assert _eventually(lambda: is_stopped(child.pid))  # else it may still hear that it is over
    woken = threading.Event()

    def wake():
        woken.set()
        os.kill(child.pid, signal.SIGCONT)

    threading.Timer(0.5, wake).start()
    fresh.close()
    assert woken.is_set()  # close waits until the child has let go
    assert _eventually(lambda: not _runs(child.pid))
    channel.close()


def test_a_preload_that_fails_is_told_of(capfd):
    with (
        closing(ForkServer(["rondel.nowhere"])) as fork_server,
        pytest.raises(RondelError, match="exited with 1"),
    ):
        fork_server.spawn("os:getpid")
    assert "No module named 'rondel.nowhere'" in capfd.readouterr().err


def test_an_interrupted_spawn_does_not_answer_the_next(fresh, monkeypatch):
    def interrupted(deadline):
        raise KeyboardInterrupt

    mine, theirs = pair()
    with closing(theirs), monkeypatch.context() as patch:
        patch.setattr(fresh, "_hear", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fresh.spawn(f"{__name__}:sleep", [theirs.fileno()])
    child, channel = _start(fresh, "leave")
    with closing(mine), closing(channel):
        assert fresh.status(child.pid, 30) == "exited with 3"
        fresh.close(timeout=0)
        with pytest.raises(Gone):
            mine.receive(0)  # the child that nobody asked for is gone too


def test_jax_is_preloaded_but_not_started(capfd):
    with closing(ForkServer([__name__, "jax"])) as fork_server:
        for _ in range(2):
            child, channel = _start(fork_server, "sum_on_jax")
            with closing(channel):
                assert channel.receive(60) == 45.0
            assert fork_server.status(child.pid, 30) == "exited with 0"
    assert capfd.readouterr().err == ""


# Whole drivers, run as scripts.

DRIVER = """
import os, signal, sys, time
open("ran", "a").write("x")  # no guard: whoever imports this is seen
from rondel.execution.backends.wire.socket_channel import pair
from rondel.execution.backends.processes.fork_server import ForkServer

fork_server = ForkServer()
pids = [fork_server._server.pid]
for _ in range(3):
    mine, theirs = pair()
    pids.append(fork_server.spawn("worker:tell", [theirs.fileno()], {payload}).pid)
    theirs.close()
    assert mine.receive(30) == pids[-1]
"""

WORKER = """
import ctypes, os, time
from rondel.execution.backends.wire.socket_channel import Channel

def tell(fds, payload):
    Channel.from_fd(fds[0]).send(os.getpid())
    if payload == b"hold the GIL":
        ctypes.PyDLL(None).sleep(1000)
    time.sleep(1000)
"""

ENDINGS = {
    "by SIGKILL": "",
    "with children that hold the GIL": "",
    "after its server": "os.kill(pids[0], signal.SIGKILL)",
    "with a fork that holds its files": """
if os.fork() == 0:
    os.close(1)
    for _ in range(200):
        if os.path.exists(f"/proc/{pids[0]}"):
            time.sleep(0.1)
    os._exit(0)
""",
}


def _drive(folder, ending, payload=b""):
    (folder / "driver.py").write_text(DRIVER.format(payload=payload) + ending)
    (folder / "worker.py").write_text(WORKER)
    return subprocess.Popen(
        [sys.executable, "driver.py"], cwd=folder, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("how", ENDINGS)
def test_a_killed_driver_leaves_nobody(tmp_path, how):
    ending = ENDINGS[how] + "\nprint(*pids, flush=True)\ntime.sleep(1000)"
    with _drive(tmp_path, ending, b"hold the GIL" if "GIL" in how else b"") as driver:
        assert driver.stdout is not None
        pids = list(map(int, driver.stdout.readline().split()))
        driver.kill()
    assert len(pids) == 4
    try:
        assert _eventually(lambda: not any(map(_runs, pids)))
    finally:
        for pid in filter(_runs, pids):
            os.kill(pid, signal.SIGKILL)


def test_the_users_main_runs_once(tmp_path):
    with _drive(tmp_path, "fork_server.close(0)") as driver:
        assert driver.wait(30) == 0
    assert (tmp_path / "ran").read_text() == "x"


@pytest.mark.parametrize("ending", ["", "os._exit(0)"])
def test_a_driver_that_forgets_to_close_leaves_nobody(tmp_path, ending):
    with _drive(tmp_path, "print(*pids, flush=True)\n" + ending) as driver:
        assert driver.stdout is not None
        pids = list(map(int, driver.stdout.readline().split()))
        driver.wait(30)
    assert _eventually(lambda: not any(map(_runs, pids)))
