"""A disk that is full, a folder that can't be written to, a log that can't: a sentence, no loss."""

import json
import os
import subprocess
import sys

import pytest

from rondel import RondelError
from rondel.run.storage import checkpoint, locate
from rondel.run.storage.metrics_file import MetricsFile, read
from run import small_checkpoints
from run.driver_to_kill import SMALL

pytestmark = pytest.mark.fault

TRAIN = ["train", "ppo", "CartPole-v1", "--eval-episodes", "3", "--json", *SMALL]
MAIN = """
import resource, signal, sys
from pathlib import Path
from rondel.cli import main
from rondel.run.storage import checkpoint
from rondel.run.training import train_loop
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
train_loop.CHECKPOINT_SECONDS = 0.0
limit, after, real = int(sys.argv[1]), int(sys.argv[2]), checkpoint.save
def save(*args, **kwargs):
    path = real(*args, **kwargs)
    if int(path.name) == after:  # from now on the disk is full
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return path
checkpoint.save = save
if not after:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
main.main(sys.argv[3:])
"""


def rondel(*argv, limit=None, after=0, **streams):
    """A command where files may have `limit` bytes once checkpoint `after` is saved."""
    head = ["-c", MAIN, limit, after] if limit is not None else ["-m", "rondel"]
    command = [sys.executable, *map(str, [*head, *argv])]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    # the tests' own cache must not be on the full disk
    env = os.environ | ({} if limit is None else {"JAX_ENABLE_COMPILATION_CACHE": "0"})
    return subprocess.run(command, text=True, timeout=200, check=False, env=env, **streams)


def assert_refused(done, *words):
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("rondel: ")
    assert all(word in last for word in words), last


def partials(folder):
    return list(folder.rglob(".*"))


@pytest.mark.parametrize("limit", [0, pytest.param(300, marks=pytest.mark.long)])
def test_a_disk_that_is_full_at_the_start(tmp_path, limit):
    folder = tmp_path / "run"
    done = rondel(*TRAIN, "--steps", 3_000, "--out", folder, limit=limit)
    assert_refused(done, "can't be written: File too large", "Make space there")
    assert not partials(folder)


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (2_000, "A checkpoint can't be saved"),
        pytest.param(600, "The metrics", marks=pytest.mark.long),
    ],
)
def test_a_disk_that_fills_up_while_a_run_saves(tmp_path, limit, words):
    """The limit is below a checkpoint's size, or below that of metrics.jsonl as well."""
    folder = tmp_path / "run"
    done = rondel(*TRAIN, "--steps", 100_000, "--out", folder, limit=limit, after=1)
    assert_refused(done, words, "File too large", "Make space there")
    assert not partials(folder)
    newest = locate.find_checkpoint(folder)
    small_checkpoints.verify(newest)
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        json.loads(line)
    if words == "A checkpoint can't be saved":
        assert f"The last good one, {newest}, is unharmed" in done.stderr
    steps = checkpoint.read_meta(newest)["steps"]
    again = rondel("resume", folder, "--steps", steps + 2_000, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["steps"] >= steps + 2_000


@pytest.mark.long
def test_a_disk_that_is_full_at_the_end(tmp_path):
    """The curve is bigger than all the rest: the run is saved, and only that is missing."""
    folder = tmp_path / "run"
    done = rondel(*TRAIN, "--steps", 100, "--out", folder, limit=9_000)
    assert_refused(done, "The picture ", "can't be written: File too large")
    assert not partials(folder)
    saved = sorted((folder / "checkpoints").iterdir())
    again = rondel("resume", folder, "--json")  # brings it to its end
    assert again.returncode == 0, again.stderr
    assert (folder / "curve.png").exists()
    assert sorted((folder / "checkpoints").iterdir()) == saved


def test_a_log_on_a_full_disk_ends_no_run(tmp_path):
    with open("/dev/full", "w") as full:
        done = rondel(*TRAIN, "--steps", 2_000, "--out", tmp_path / "run", stderr=full)
    assert done.returncode == 0
    assert json.loads(done.stdout)["steps"] >= 2_000


def test_a_result_on_a_full_disk_is_a_sentence(tmp_path):
    with open("/dev/full", "w") as full:
        done = rondel(*TRAIN, "--steps", 200, "--out", tmp_path / "run", stdout=full)
        assert_refused(done, "can't be printed: No space left")
        assert (tmp_path / "run" / "curve.png").exists()
        assert_refused(rondel("list", "envs", stdout=full), "can't be printed")


def test_half_a_row_is_taken_back(tmp_path):
    import resource

    path = tmp_path / "metrics.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with MetricsFile(path) as recorder:
        recorder.write({"steps": 1})
        resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
        try:
            with pytest.raises(RondelError, match="File too large"):
                recorder.write({"steps": 2, "loss": 0.5})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert path.read_bytes() == b'{"steps": 1}\n'
        recorder.write({"steps": 3})
    assert read(path) == [{"steps": 1}, {"steps": 3}]


READ_ONLY = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    0x20000, 1, 32, 4096, 16384, 1 << 18
)
def mount(source, target, flags):
    if libc.mount(source, target, None, flags, None):
        print("no mounts here")
        sys.exit(77)
if libc.unshare(CLONE_NEWNS):
    print("no mounts here")
    sys.exit(77)
place = os.fsencode(sys.argv[1])
mount(b"none", b"/", MS_REC | MS_PRIVATE)
mount(place, place, MS_BIND)
mount(place, place, MS_BIND | MS_REMOUNT | MS_RDONLY)
os.execv(sys.executable, [sys.executable, "-m", "rondel", *sys.argv[2:]])
"""


def on_read_only(place, *argv):
    """A command that sees `place` on a disk that can only be read; skips where nobody may mount."""
    command = [sys.executable, "-c", READ_ONLY, *map(str, (place, *argv))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    if done.returncode == 77:
        pytest.skip("mounting needs rights that this user has not")
    return done


@pytest.mark.long
def test_a_read_only_folder_is_a_sentence_and_can_still_be_read(tmp_path):
    folder = tmp_path / "run"
    assert rondel(*TRAIN, "--steps", 200, "--out", folder).returncode == 0
    words = "Read-only file system"
    assert_refused(on_read_only(tmp_path, *TRAIN, "--out", tmp_path / "new"), words)
    (tmp_path / "empty").mkdir()
    assert_refused(on_read_only(tmp_path, *TRAIN, "--out", tmp_path / "empty"), words)
    assert_refused(on_read_only(tmp_path, "resume", folder, "--steps", 900), words)
    (folder / "curve.png").unlink()
    assert_refused(on_read_only(tmp_path, "resume", folder), words)
    played = on_read_only(tmp_path, "eval", folder, "--episodes", 3, "--json")
    assert played.returncode == 0, played.stderr
