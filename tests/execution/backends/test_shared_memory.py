"""Trees come back as they were, blocks never overlap, and what is freed is used again."""

import os
import subprocess
import sys
from itertools import pairwise
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rondel.execution.backends.processes import shared_memory
from rondel.execution.backends.processes.shared_memory import Arena, Message, View, decode, encode


class Step(NamedTuple):
    obs: object
    reward: object


@pytest.fixture
def arena():
    arena = Arena()
    yield arena
    arena.close()


@pytest.fixture
def view(arena):
    view = View(os.dup(arena.fd))
    yield view
    view.close()


def same(one, other):
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()
    elif isinstance(one, dict):
        assert list(one) == list(other)
        same(tuple(one.values()), tuple(other.values()))
    elif isinstance(one, tuple | list):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    else:
        assert one == other


arrays = hnp.arrays(
    dtype=st.one_of(hnp.scalar_dtypes(), hnp.array_dtypes()),
    shape=hnp.array_shapes(min_dims=0, min_side=0, max_side=4),
)
# Slices with steps, turned axes: what is not contiguous.
views = arrays.flatmap(
    lambda x: st.sampled_from([x, x.T, x[..., ::-1] if x.ndim else x, x[::2] if x.ndim else x])
)
trees = st.recursive(
    st.one_of(views, st.none(), st.booleans(), st.integers(), st.text(), st.binary()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.builds(Step, inner, inner),
    ),
    max_leaves=8,
)


@given(tree=trees, copy=st.booleans())
@settings(max_examples=150, deadline=None)
def test_trees_come_back_as_they_were(tree, copy):
    arena = Arena()
    view = View(os.dup(arena.fd))
    message = encode(tree, arena)
    same(decode(message, view, copy=copy), tree)
    arena.free(message.places)
    assert not arena._live
    view.close()
    arena.close()


@pytest.mark.parametrize(
    "x",
    [
        np.arange(40_000.0).reshape(200, 200).T,
        np.broadcast_to(np.float32(3), (300, 300)),
        np.zeros((0, 5)),
        np.array(7),
        np.ones((300, 300), ml_dtypes.bfloat16),
        np.array([[True, False]] * 5000),
        np.full(5000, "2020-01-01", "datetime64[ns]"),
        np.zeros(5000, [("a", "f4"), ("b", "i8")]),
    ],
    ids=lambda x: f"{x.dtype}{x.shape}",
)
def test_arrays_are_never_in_the_skeleton(arena, view, x):
    message = encode(x, arena)
    assert len(message.skeleton) < 500
    assert [n for _, n in message.places] == [x.nbytes]
    same(decode(message, view), x)


def test_a_tree_that_pickle_knows_needs_nothing_else(arena, view, monkeypatch):
    monkeypatch.delattr(shared_memory, "_ClassesByValue")
    tree = {"step": Step(np.ones(3), (None, 1.5)), "scalar": np.float32(2)}
    same(decode(encode(tree, arena), view), tree)


def test_one_array_at_two_leaves_is_sent_once(arena, view):
    x = np.arange(5)
    message = encode((x, x), arena)
    assert len(message.places) == 1
    one, other = decode(message, view)
    assert one is other


def test_what_is_not_copied_is_shared_and_read_only(arena, view):
    message = encode({"x": np.arange(5)}, arena)
    x = decode(message, view)["x"]
    copied = decode(message, view, copy=True)["x"]
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 1
    copied[0] = 9
    arena.free(message.places)
    encode({"x": np.arange(5) + 10}, arena)  # of the same size: in the same place
    assert x.tolist() == [10, 11, 12, 13, 14]
    assert copied.tolist() == [9, 1, 2, 3, 4]


def test_arrays_outlive_growth_and_their_view(arena):
    view = View(os.dup(arena.fd))
    small = decode(encode(np.arange(5), arena), view)
    size = os.fstat(arena.fd).st_size
    large = decode(encode(np.arange(10_000_000), arena), view)
    grown = os.fstat(arena.fd).st_size
    assert grown > size
    assert grown.bit_count() == 1  # a power of two
    view.close()
    assert small.tolist() == list(range(5))
    assert large[-1] == 9_999_999


def test_a_steady_run_allocates_nothing(arena):
    def round(lag, shapes):
        for shape in shapes:
            lag.append(encode({"a": np.zeros(shape), "b": np.zeros(3)}, arena))
        while len(lag) > 4:
            arena.free(lag.pop(0).places)

    lag: list[Message] = []
    round(lag, [100, 2000, 2000, 100] * 3)
    end = arena._end
    for _ in range(20):
        round(lag, [100, 2000, 2000, 100])
    assert arena._end == end


def test_sizes_that_never_repeat_find_blocks_too(arena):
    sizes = np.random.default_rng(0).integers(1, 100_000, 3000)
    for n in sizes:
        arena.free([arena.put(memoryview(bytes(n)))])
    assert arena._end < 3 * 1024 * 1024  # one block per size class, although 150 MB were sent


def test_what_is_not_held_cannot_be_freed(arena):
    (place,) = encode(np.zeros(100), arena).places
    for wrong in [(place[0] + 64, 800), (place[0], 8000)]:
        with pytest.raises(AssertionError, match="to free"):
            Arena().free([wrong])
    arena.free([place])
    with pytest.raises(AssertionError, match="to free"):
        arena.free([place])


def test_a_place_beyond_the_arena_is_refused(arena, view):
    with pytest.raises(AssertionError, match="not in this arena"):
        view.get((os.fstat(arena.fd).st_size, 1))


def test_memory_and_files_are_given_back():
    before = len(os.listdir("/proc/self/fd"))
    arena = Arena()
    view = View(os.dup(arena.fd))
    for n in (10, 1_000_000, 10_000_000):
        decode(encode(np.zeros(n), arena), view)
    arena.close()
    view.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_new_writer_takes_over(arena, view):
    encode(np.zeros(1_000_000), arena)
    size = os.fstat(arena.fd).st_size
    heir = Arena(os.dup(arena.fd))
    assert os.fstat(arena.fd).st_size == size  # a reader that still looks would crash
    same(decode(encode(np.arange(2_000_000), heir), view), np.arange(2_000_000))
    heir.close()


class Blocks(RuleBasedStateMachine):
    """Any order of puts and frees: live blocks keep their bytes, so they never overlap."""

    def __init__(self):
        super().__init__()
        self.arena = Arena()
        self.view = View(os.dup(self.arena.fd))
        self.held = []
        self.count = 0

    @rule(nbytes=st.one_of(st.integers(1, 300), st.sampled_from([4096, 700_000, 3_000_000])))
    def put(self, nbytes):
        self.count += 1
        data = bytes([self.count % 251]) * nbytes
        place = self.arena.put(memoryview(data))
        assert place[0] % 64 == 0
        self.held.append((place, data))

    @precondition(lambda self: self.held)
    @rule(which=st.randoms(use_true_random=False))
    def free(self, which):
        place, _ = self.held.pop(which.randrange(len(self.held)))
        self.arena.free([place])

    @invariant()
    def nothing_overlaps(self):
        spans = sorted(place for place, _ in self.held)
        for (offset, nbytes), (after, _) in pairwise(spans):
            assert offset + nbytes <= after
        for place, data in self.held:
            assert bytes(self.view.get(place)) == data

    def teardown(self):
        self.view.close()
        self.arena.close()


TestBlocks = Blocks.TestCase
TestBlocks.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def test_local_classes(arena, view):
    class Local(NamedTuple):
        x: object

    got = decode(encode({"a": Local(np.arange(3))}, arena), view)["a"]
    assert type(got) is Local
    assert got.x.tolist() == [0, 1, 2]


# A class of the user's script goes to a child and comes back as the same class, untouched.

SCRIPT = """
import os
from typing import NamedTuple
import cloudpickle, numpy as np
from rondel.execution.backends.wire.socket_channel import pair
from rondel.execution.backends.processes.shared_memory import (Arena, View, decode, encode)
from rondel.execution.backends.processes.fork_server import ForkServer

calls = []

class Child(NamedTuple):  # also the name of something in rondel
    x: object
    def note(self):
        calls.append(self.x)

note = Child.note
first_by_cloudpickle = {first}
arena, (mine, theirs) = Arena(), pair()
fork_server = ForkServer()
task = cloudpickle.dumps(Child(1) if first_by_cloudpickle else None)
fork_server.spawn("worker:answer", [theirs.fileno(), arena.fd], task)
(view,) = map(View, mine.receive_fds(30)[1])
sizes = []
for i in range(3):
    message = encode({{"in": Child(np.arange(i))}}, arena)
    mine.send(message)
    answer = mine.receive(30)
    tree = decode(answer, view)
    assert type(tree["in"]) is Child, type(tree["in"])
    assert tree["in"].x.tolist() == [n + 1 for n in range(i)]
    assert Child.note is note, "the driver's class was written over"
tree["in"].note()
assert len(calls) == 1
mine.close()
theirs.close()
fork_server.close()
"""

WORKER = """
import pickle
from rondel.execution.backends.wire.socket_channel import Channel, Gone
from rondel.execution.backends.processes.shared_memory import (Arena, View, decode, encode)

def answer(fds, payload):
    task = pickle.loads(payload)
    driver, view, arena = Channel.from_fd(fds[0]), View(fds[1]), Arena()
    driver.send(None, [arena.fd])
    try:
        while True:
            step = decode(driver.receive(), view)["in"]
            assert task is None or type(task) is type(step)
            driver.send(encode({"in": step._replace(x=step.x + 1)}, arena))
    except Gone:
        pass
"""


@pytest.mark.parametrize("first", [True, False])
def test_a_class_of_main_comes_back_as_itself(tmp_path, first):
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "script.py").write_text(SCRIPT.format(first=first))
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
