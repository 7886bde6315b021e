"""Messages arrive whole and in order, with their descriptors, and a dead peer is noticed."""

import os
import selectors
import subprocess
import sys
import threading

import pytest

from rondel.errors import RondelError
from rondel.execution.backends.wire import socket_channel
from rondel.execution.backends.wire.socket_channel import Channel, Gone, pair

BIG = bytes(range(256)) * 40_000  # 10 MB: no socket buffer holds it


@pytest.fixture
def ends():
    one, other = pair()
    yield one, other
    one.close()
    other.close()


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_messages_pass_between_processes(ends):
    mine, theirs = ends
    messages = ["a", {"b": (1, None)}, b"", BIG, 3]
    echo = (
        "import sys\n"
        "from rondel.execution.backends.wire.socket_channel import Channel\n"
        "driver = Channel.from_fd(int(sys.argv[1]))\n"
        f"for _ in range({len(messages)}): driver.send(driver.receive(10))"
    )
    fd = theirs.fileno()
    with subprocess.Popen([sys.executable, "-c", echo, str(fd)], pass_fds=[fd]) as process:
        theirs.close()
        answers = []
        for message in messages:
            mine.send(message)
            answers.append(mine.receive(10))
        assert answers == messages
        with pytest.raises(Gone):
            mine.receive(10)
    assert process.returncode == 0


def test_both_sides_may_send_much_at_once(ends):
    one, other = ends
    for end in (one, other, one, other):
        end.send(BIG, timeout=5)  # would raise if it waited for a reader
    assert [one.receive(1) == BIG, other.receive(1) == BIG] == [True, True]


def test_size_decides_how_a_message_travels_but_not_what_arrives(ends):
    one, other = ends
    for size in range(socket_channel._PACKET - 40, socket_channel._PACKET + 40):
        one.send(bytes(size))
        assert other.receive(1) == bytes(size)


def test_selector_reports_every_message(ends):
    one, other = ends
    one.send("first")
    one.send("second")
    with selectors.DefaultSelector() as selector:
        selector.register(other, selectors.EVENT_READ)
        got = []
        while selector.select(0):
            got.append(other.receive(0))
    assert got == ["first", "second"]


@pytest.mark.parametrize("timeout", [0, 0.01])
def test_nothing_in_time(ends, timeout):
    one, other = ends
    one.peer = "actor 3"
    with pytest.raises(TimeoutError, match="actor 3 sent nothing"):
        one.receive(timeout)
    other.send("late")
    assert one.receive(1) == "late"


def test_who_does_not_read_is_named(ends):
    one, _ = ends
    one.peer = "actor 3"
    with pytest.raises(RondelError, match="actor 3 did not read"):  # noqa: PT012
        for _ in range(10_000):
            one.send(bytes(socket_channel._PACKET - 100), timeout=0.01)


@pytest.mark.parametrize("one_more_send", [False, True])
def test_last_words_are_heard_although_it_left_ours_unread(ends, one_more_send):
    one, other = ends
    one.send("never read")
    other.send("last words")
    other.close()
    if one_more_send:
        with pytest.raises(Gone):
            one.send("too late")
    assert one.receive(1) == "last words"
    with pytest.raises(Gone):
        one.receive(1)


@pytest.mark.parametrize("message", ["small", BIG])
def test_descriptors_come_along(ends, message):
    one, other = ends
    before = open_files()
    readable, writable = os.pipe()
    one.send(message, [writable])
    os.close(writable)
    got, (passed,) = other.receive_fds(1)
    assert got == message
    assert not os.get_inheritable(passed)
    os.write(passed, b"through")
    assert os.read(readable, 7) == b"through"
    os.close(passed)
    os.close(readable)
    assert open_files() == before


@pytest.mark.parametrize("message", ["small", BIG])
@pytest.mark.parametrize("count", [249, 250, 251, 252, 253, 600])
def test_as_many_descriptors_as_wanted(ends, message, count):
    one, other = ends
    with open("/dev/null") as null, open("/dev/zero") as zero:
        one.send(message, [null.fileno()] * (count - 1) + [zero.fileno()])
        got, fds = other.receive_fds(1)
    assert got == message
    kinds = [os.readlink(f"/proc/self/fd/{fd}") for fd in fds]
    for fd in fds:
        os.close(fd)
    assert kinds == ["/dev/null"] * (count - 1) + ["/dev/zero"]
    one.send("next")
    assert other.receive(1) == "next"


def test_a_closed_peer_wakes_a_waiting_reader(ends):
    one, other = ends
    closer = threading.Timer(0.05, other.close)
    closer.start()
    with pytest.raises(Gone):
        one.receive(10)
    closer.join()


def test_an_end_made_from_a_descriptor_owns_it(ends):
    one, other = ends
    before = open_files()
    copy = Channel.from_fd(os.dup(other.fileno()), "the driver")
    one.send([1, 2])
    assert copy.receive(1) == [1, 2]
    copy.close()
    assert open_files() == before


def test_what_pickle_refuses_sends_nothing(ends):
    one, other = ends
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        one.send(threading.Lock())
    with pytest.raises(TimeoutError):
        other.receive(0)
