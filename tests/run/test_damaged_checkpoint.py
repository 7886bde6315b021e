"""A checkpoint that was damaged, or that a stranger made, is told from a good one."""

import io
import json
import os
import pickle
import shutil
import zipfile

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rondel.run.storage import checkpoint
from rondel.run.storage.checkpoint import CheckpointError
from rondel.run.storage.locate import MEMORY, META, STATE
from run import small_checkpoints
from run.small_checkpoints import save_small, small

pytestmark = pytest.mark.fault


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two checkpoints; tests damage the second and put it back."""
    folder = tmp_path_factory.mktemp("pair")
    return save_small(folder, 1), save_small(folder, 2)


@pytest.fixture(params=[STATE, MEMORY, META])
def damage(request, pair):
    """Writes other bytes into one file of the second checkpoint and looks what is said of it."""
    older, newest = pair
    path = newest / request.param
    data = path.read_bytes()

    def replace(other):
        path.write_bytes(other)
        with pytest.raises(CheckpointError) as caught:
            checkpoint.load(newest, *small(0))
        sentence = str(caught.value)
        assert sentence.startswith(f"{path} is damaged")
        assert sentence.endswith(f"older one is good: {older}.")

    replace.data = data
    yield replace
    path.write_bytes(data)
    small_checkpoints.verify(newest)


def test_every_flipped_byte_is_noticed(damage):
    data = damage.data
    for i in range(0, len(data), 7):
        damage(data[:i] + bytes([data[i] ^ 1 << i % 8]) + data[i + 1 :])


def test_every_missing_tail_is_noticed(damage):
    for end in range(0, len(damage.data), 11):
        damage(damage.data[:end])
    damage(damage.data + b"\n")


class Harm:
    def __reduce__(self):
        return (os.abort, ())


def a_zip():
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("data.pkl", "x")
        return file.getvalue()


FOREIGN = [b"", b"{}", b"null", a_zip(), pickle.dumps(Harm()), b"[" * 10_000, bytes(1000)]


@pytest.mark.parametrize("other", FOREIGN)
def test_a_foreign_file_is_noticed_and_never_run(damage, other):
    damage(other)


@given(st.binary(max_size=300))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_garbage_is_noticed(damage, other):
    damage(other)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["format", STATE]), inner),
    )
)
@example({STATE: {"bytes": 0, "crc32": 0}})  # right, but not of arrays
@settings(max_examples=60, deadline=None)
def test_a_meta_that_a_stranger_sealed_is_noticed_too(tmp_path_factory, content):
    """Whoever can compute a checksum can write any meta.json: still only one kind of error."""
    path = tmp_path_factory.getbasetemp() / "sealed"
    path.mkdir(exist_ok=True)
    (path / STATE).touch()
    for meta in (
        {"meta": content},
        {"format": content},
        {"format": 1, "meta": {}, "files": content},
    ):
        body = json.dumps(meta).encode().removesuffix(b"}")
        (path / META).write_bytes(body + checkpoint._seal(body))
        with pytest.raises(CheckpointError, match=r"is damaged|newer Rondel"):
            small_checkpoints.verify(path)


def test_a_missing_file_is_noticed(pair, tmp_path):
    for name in (STATE, META):
        copy = tmp_path / name
        shutil.copytree(pair[1], copy)
        (copy / name).unlink()
        with pytest.raises(CheckpointError, match=rf"{name} can't be read: No such file"):
            small_checkpoints.verify(copy)


def test_a_pipe_in_place_of_a_file_does_not_hang(pair, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(pair[1], copy)
    (copy / STATE).unlink()
    os.mkfifo(copy / STATE)
    with pytest.raises(CheckpointError, match="it is not a file"):
        small_checkpoints.verify(copy)


def test_the_offer_skips_older_ones_that_are_damaged_too(tmp_path):
    first, second, third = (save_small(tmp_path, n) for n in (1, 2, 3))
    for path in (second, third):
        (path / STATE).write_bytes(b"")
    with pytest.raises(CheckpointError, match=f"An older one is good: {first}.$"):
        small_checkpoints.verify(third)
    (first / META).unlink()
    with pytest.raises(CheckpointError, match="No older one is good"):
        small_checkpoints.verify(third)


def test_a_newer_format_is_a_sentence(tmp_path, monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(checkpoint, "FORMAT", 2)
        path = save_small(tmp_path, 1)
    with pytest.raises(CheckpointError, match=r"has format 2, .* reads up to 1. Upgrade Rondel"):
        checkpoint.read_meta(path)
