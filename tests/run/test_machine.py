"""The cache of compiled programs: what was cut off is not kept."""

import os
import zlib

from rondel.run import machine


def test_programs_that_were_cut_off_are_removed(tmp_path):
    whole = zlib.compress(bytes(range(256)) * 40)
    files = {"good-cache": whole, "half-cache": whole[: len(whole) // 2], "empty-cache": b""}
    files |= {"other-cache": b"\x28\xb5\x2f\xfd of zstandard", "notes": b""}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    machine.sweep(tmp_path)
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {"good-cache", "other-cache", "notes", ".looked-at"}


def test_only_what_is_new_is_looked_at(tmp_path):
    machine.sweep(tmp_path)
    for name in ("old-cache", "new-cache"):
        (tmp_path / name).write_bytes(b"\x78 damaged")
    os.utime(tmp_path / "old-cache", (1, 1))
    machine.sweep(tmp_path)
    assert (tmp_path / "old-cache").exists()
    assert not (tmp_path / "new-cache").exists()


def test_there_may_be_no_cache_yet(tmp_path):
    machine.sweep(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
