"""Checkpoints: what is saved comes back, a kill at any instant harms nothing."""

import errno
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from rondel.errors import RondelError
from rondel.run.storage import checkpoint, locate
from rondel.run.storage.checkpoint import CheckpointError
from rondel.run.storage.locate import MEMORY, STATE
from run import small_checkpoints
from run.small_checkpoints import State, Wrapped, assert_good, hidden, save_small, small

# What is saved comes back.


def test_a_nested_tree_comes_back_bit_for_bit(tmp_path):
    state = {
        "learner": State(
            {"dense": {"kernel": jnp.linspace(0, 1, 6).reshape(2, 3)}, "bias": jnp.float32(0.1)},
            (jnp.int32(7), None, (), {"mask": jnp.array([True, False])}),
        ),
        "env": (np.arange(4, dtype=np.uint32), np.int8([-1]), np.zeros((0, 3), np.uint8)),
        "half": jnp.array([1.5, -2.0], jnp.bfloat16),
        "nan": np.array([np.nan, np.inf]),
    }
    memory = {"obs": np.arange(12, dtype=np.uint8).reshape(3, 4).T}  # not in C order
    meta = {"config": {"lr": 0.1}, "seed": 3, "name": "größe"}
    path = checkpoint.save(tmp_path, state, memory, meta)
    assert path == tmp_path / "checkpoints" / "000001"
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)
    loaded, loaded_memory, loaded_meta = checkpoint.load(path, like, memory)
    assert loaded_meta == checkpoint.read_meta(path) == meta
    assert jax.tree.structure(loaded) == jax.tree.structure(state)
    pairs = zip(
        jax.tree.leaves((loaded, loaded_memory)), jax.tree.leaves((state, memory)), strict=True
    )
    for have, want in pairs:
        assert have.dtype == want.dtype
        assert have.shape == want.shape
        assert have.tobytes() == np.asarray(want).tobytes()


def test_what_was_loaded_does_not_need_the_files_any_more(tmp_path):
    path = checkpoint.save(tmp_path, {"w": np.ones(100_000)}, np.ones(100_000), {})
    state, memory, _ = checkpoint.load(path, {"w": np.ones(100_000)}, np.ones(100_000))
    for name in (STATE, MEMORY):
        os.truncate(path / name, 0)  # a view of a mapped file would now kill the process
    assert state["w"].sum() == memory.sum() == 100_000
    state["w"][0] = 5  # and it may be written to


def test_other_programs_find_the_parameters_under_params(tmp_path):
    learner = Wrapped(Wrapped(State({"w": np.ones(2)}, (np.ones(3),)), np.ones(4)), np.ones(5))
    path = checkpoint.save(tmp_path, {"learner": learner, "env": {"x": np.ones(6)}}, (), {})
    # both counts would be called "count", so they keep their whole paths
    assert {name: array.size for name, array in load_file(path / STATE).items()} == {
        "params/w": 2,
        "opt_state/0": 3,
        "learner/inner/count": 4,
        "learner/count": 5,
        "env/x": 6,
    }
    assert list(checkpoint.read_arrays(path)) == ["params/w"]


keys = st.sampled_from(["learner", "inner", "params", "a"])
trees = st.recursive(
    st.just(np.float32(1)),
    lambda inner: st.one_of(
        st.dictionaries(keys, inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.builds(Wrapped, inner, inner),
    ),
    max_leaves=12,
)


@given(trees)
@example({"learner": {"learner": {"x": 1}, "inner": {"x": 1}, "x": 1}})
@settings(max_examples=200, deadline=None)
def test_every_leaf_has_a_name_of_its_own(tree):
    assert len(checkpoint._named(tree)) == len(jax.tree.leaves(tree))


def test_two_arrays_of_one_path_are_refused(tmp_path):
    with pytest.raises(RondelError, match="2 are called 'a/b'"):
        checkpoint.save(tmp_path, {"a/b": np.ones(1), "a": {"b": np.ones(1)}}, (), {})
    assert not hidden(tmp_path)


def test_a_dtype_that_would_not_come_back_is_refused(tmp_path):
    with pytest.raises(RondelError, match=r"can't hold key of dtype .* jax.random.key_data"):
        checkpoint.save(tmp_path, {"key": jax.random.key(0)}, (), {})


# Old ones go, and memory stays with the newest only.


def test_only_the_newest_few_are_kept_and_only_the_newest_has_its_memory(tmp_path):
    paths = [save_small(tmp_path, n, keep=3) for n in range(5)]
    assert [path.exists() for path in paths] == [False, False, True, True, True]
    assert [(path / MEMORY).exists() for path in paths[2:]] == [False, False, True]
    assert not hidden(tmp_path)
    state, memory, _ = checkpoint.load(paths[3], *small(0))
    assert state["learner"].params["w"][0] == 3
    assert memory is None
    assert checkpoint.load(paths[4], *small(0))[1] is not None


def test_the_one_just_written_is_kept_whatever_keep_says(tmp_path):
    for n in range(3):
        path = save_small(tmp_path, n, keep=0)
    assert locate.find_checkpoint(tmp_path) == path
    assert len(list(path.parent.iterdir())) == 1


def test_an_empty_memory_has_no_file(tmp_path):
    path = checkpoint.save(tmp_path, small(1)[0], (), {})
    assert not (path / MEMORY).exists()
    assert checkpoint.load(path, small(0)[0], ())[1] == ()


def test_a_memory_that_is_not_asked_for_is_not_read(tmp_path):
    path = save_small(tmp_path, 1)
    (path / MEMORY).write_bytes(b"damaged")
    assert checkpoint.load(path, small(0)[0], None)[1] is None
    with pytest.raises(CheckpointError):
        checkpoint.load(path, *small(0))


def test_find_takes_a_run_its_checkpoints_or_one_of_them(tmp_path):
    for n in range(3):
        path = save_small(tmp_path, n)
    older = path.with_name("000002")
    assert (
        locate.find_checkpoint(tmp_path) == locate.find_checkpoint(tmp_path / "checkpoints") == path
    )
    assert locate.find_checkpoint(older) == older
    shutil.copytree(path, tmp_path / "best")
    assert locate.find_checkpoint(tmp_path / "best") == tmp_path / "best"


@pytest.mark.parametrize("place", [".", "nowhere"])
def test_find_says_when_there_is_none(tmp_path, place):
    (tmp_path / "checkpoints" / ".000001.partial").mkdir(parents=True)
    with pytest.raises(RondelError, match="holds no checkpoint: "):
        locate.find_checkpoint(tmp_path / place)


def test_a_file_is_no_folder_and_the_folder_that_it_is_in_is_named(tmp_path):
    path = save_small(tmp_path, 1)
    (config := tmp_path / "config.json").touch()
    for file, home in {config: tmp_path, path / "state.safetensors": path}.items():
        with pytest.raises(RondelError, match=f"{file} is a file. .* such as {home}.$"):
            locate.find_checkpoint(file)


def test_a_file_that_is_of_no_run_gets_no_hint(tmp_path):
    (stray := tmp_path / "a.txt").touch()
    with pytest.raises(RondelError, match=r"a.txt is a file. Use the folder of a run\.$"):
        locate.find_checkpoint(stray)


# A tree of another shape.


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (
            {"w": np.ones((2, 3), np.float32), "b": np.ones(2)},
            r"b in .* must be float64 \[2\], got nothing",
        ),
        (
            {"w": np.ones((2, 4), np.float32)},
            r"w in .* must be float32 \[2, 4\], got float32 \[2, 3\]",
        ),
        ({"w": np.ones((2, 3), np.int32)}, r"w in .* must be int32 \[2, 3\], got float32 \[2, 3\]"),
        ({}, "has w, but this run does not"),
    ],
)
def test_the_first_mismatch_is_named(tmp_path, state, sentence):
    path = checkpoint.save(tmp_path, {"w": np.ones((2, 3), np.float32)}, (), {})
    with pytest.raises(CheckpointError, match=sentence):
        checkpoint.load(path, state, ())


def test_a_memory_that_was_never_there_is_a_mismatch(tmp_path):
    path = checkpoint.save(tmp_path, {}, (), {})
    with pytest.raises(CheckpointError, match=r"obs in .* must be float64 \[2\], got nothing"):
        checkpoint.load(path, {}, {"obs": np.ones(2)})


# A kill at any instant.

KILLED_WRITER = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
from rondel.run.storage import checkpoint, locate

folder, chance = Path(sys.argv[1]), random.Random(0)
def trees(n):
    return {"a": np.full(30_000, n), "b": np.full(10, n)}, np.full(200_000, n)

newest = 0
for kill in range(20):
    child = os.fork()
    if child == 0:
        n = newest
        while True:
            n += 1
            checkpoint.save(folder, *trees(n), {"n": n}, keep=2)
    if kill == 0:
        while not (folder / "checkpoints" / "000001").exists():
            time.sleep(0.001)
    time.sleep(chance.uniform(0.0, 0.05))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    state, memory, meta = checkpoint.load(locate.find_checkpoint(folder), *trees(0))
    assert meta["n"] >= newest, (meta, newest)
    newest = meta["n"]
    for array in (*state.values(), memory):
        assert (array == newest).all(), newest
print(newest)
"""


def test_a_writer_that_is_killed_leaves_the_newest_loadable(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", KILLED_WRITER, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2


class Killed(BaseException):
    """Nothing that a dead process could catch."""


def strike(monkeypatch, at, failure):
    """Let the at-th step that touches the disk fail, and those after it too if that is a kill.

    Gives the list of the steps so far.
    """
    steps = []

    def failing(name, real):
        def step(*args, **kwargs):
            steps.append(name)
            if len(steps) == at or (len(steps) > at and isinstance(failure, Killed)):
                if name == "save_file":
                    Path(args[1]).write_bytes(b"half")
                raise failure
            return real(*args, **kwargs)

        return step

    for name in ("mkdir", "rename", "fsync", "unlink", "rmdir"):
        monkeypatch.setattr(os, name, failing(name, getattr(os, name)))
    monkeypatch.setattr(checkpoint, "save_file", failing("save_file", checkpoint.save_file))
    return steps


@pytest.mark.parametrize("failure", [Killed(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_failure_at_any_step_leaves_a_good_one(tmp_path, monkeypatch, failure):
    before = tmp_path / "before"
    for n in (1, 2, 3):
        save_small(before, n, keep=3)
    (before / "checkpoints" / ".000003.removed").mkdir()
    for at in range(1, 100):
        folder = tmp_path / str(at)
        shutil.copytree(before, folder)
        sentence = None
        with monkeypatch.context() as patched:
            steps = strike(patched, at, failure)
            try:
                save_small(folder, 4, keep=2)
            except Killed:
                pass
            except RondelError as error:
                sentence = str(error)
        newest = locate.find_checkpoint(folder)
        for path in newest.parent.glob("[0-9]*"):
            small_checkpoints.verify(path)
        # before the rename the last good one is 3, after it 4
        assert assert_good(newest) in (3, 4)
        if sentence:
            assert f"No space left on device. The last good one, {newest}, is unharmed" in sentence
            assert not [name for name in hidden(folder) if name.endswith("partial")]
        assert assert_good(save_small(folder, 5, keep=2)) == 5
        assert not hidden(folder)
        assert len(list((folder / "checkpoints").iterdir())) == 2
        if len(steps) < at:
            break
    assert {"mkdir", "rename", "fsync", "unlink", "rmdir", "save_file"} <= set(steps)
    assert 15 < at < 100


def test_a_full_disk_is_a_sentence_and_harms_nothing(tmp_path):
    good = save_small(tmp_path, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(RondelError, match=rf"{good}, is unharmed. Make space"):
            checkpoint.save(tmp_path, {"w": np.ones(10_000)}, (), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not hidden(tmp_path)
    assert assert_good(locate.find_checkpoint(tmp_path)) == 1


def test_a_place_that_can_not_be_written_is_a_sentence(tmp_path):
    (tmp_path / "run").write_text("a file, not a folder")
    with pytest.raises(RondelError, match=r"saved in .*: Not a directory\. Make space"):
        save_small(tmp_path / "run", 1)
