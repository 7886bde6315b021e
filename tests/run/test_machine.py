"""What a process sets for JAX, and the cache of compiled programs: what was cut off goes."""

import os
import subprocess
import sys
import textwrap
import zlib

import pytest

from rondel.run import machine


def test_a_call_is_made_in_the_thread_of_its_caller(monkeypatch):
    code = "from rondel.run import machine; machine.settle(); import jax; print(jax.config.{})"
    told = [sys.executable, "-c", code.format("values['jax_cpu_enable_async_dispatch']")]
    monkeypatch.delenv("JAX_CPU_ENABLE_ASYNC_DISPATCH", raising=False)
    assert subprocess.check_output(told, text=True).strip() == "False"
    monkeypatch.setenv("JAX_CPU_ENABLE_ASYNC_DISPATCH", "1")  # who asks for it has it
    assert subprocess.check_output(told, text=True).strip() == "True"


def test_xla_has_one_thread_unless_its_user_asks_for_more(monkeypatch):
    for name in ("PJRT_NPROC", "NPROC"):
        monkeypatch.delenv(name, raising=False)
    assert machine.settle().endswith("on 1 threads")
    assert os.environ["PJRT_NPROC"] == "1"
    monkeypatch.setenv("PJRT_NPROC", "7")
    assert machine.settle().endswith("on 7 threads")
    monkeypatch.delenv("PJRT_NPROC")
    monkeypatch.setenv("NPROC", "5")
    assert machine.settle().endswith("on 5 threads")
    assert "PJRT_NPROC" not in os.environ


@pytest.mark.parametrize(
    ("before", "plan", "on", "devices"),
    [
        ("", "all*2", "inline", 2),
        ("", "actor+memory | gradient*2 | update", "inline", 2),
        ("", "actor*2 | learner", "inline", 1),
        ("", "all*2", "processes", 1),
        ("", "all*4", "inline", 1),  # more than there are cores
        ("jax.devices()", "all*2", "inline", 1),  # JAX has started
        ("jax.config.update('jax_num_cpu_devices', 3)", "all*2", "inline", 3),  # its user's word
    ],
)
def test_a_device_for_each_copy_that_can_be_a_part_of_one_program(before, plan, on, devices):
    code = textwrap.dedent(f"""
        import jax
        from rondel.run import machine
        from rondel.run.setup import prepare

        machine.cores = lambda: 2
        machine.settle()
        {before}
        prepare("ppo", "CartPole-v1", fields={{"plan": "{plan}", "lanes": 32, "on": "{on}"}})
        print(jax.local_device_count(), machine.settle().split()[-2])
    """)
    told = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert told.split() == [str(devices)] * 2  # XLA has as many threads


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
