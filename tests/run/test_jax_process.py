"""What a process sets for JAX, and the cache of compiled programs: what was cut off goes."""

import os
import subprocess
import sys
import textwrap
import zlib

import pytest

from rondel.run.setup import jax_process


def test_a_call_is_made_in_the_thread_of_its_caller(monkeypatch):
    code = (
        "from rondel.run.setup import jax_process; jax_process.configure_jax();"
        "import jax; print(jax.config.{})"
    )
    told = [sys.executable, "-c", code.format("values['jax_cpu_enable_async_dispatch']")]
    monkeypatch.delenv("JAX_CPU_ENABLE_ASYNC_DISPATCH", raising=False)
    assert subprocess.check_output(told, text=True).strip() == "False"
    monkeypatch.setenv("JAX_CPU_ENABLE_ASYNC_DISPATCH", "1")  # who asks for it has it
    assert subprocess.check_output(told, text=True).strip() == "True"


def settled(code, **env):
    """What a new process of three cores prints that runs this; `word` is how many threads."""
    before = "from rondel.run.setup import jax_process\njax_process.cores = lambda: 3\n"
    before += "word = lambda *work: jax_process.configure_jax(*work).split()[-2]\n"
    clean = {k: v for k, v in os.environ.items() if "NPROC" not in k and "CACHE" not in k}
    told = [sys.executable, "-c", before + textwrap.dedent(code)]
    return subprocess.check_output(told, text=True, env=clean | env).split()


def test_a_large_draw_has_a_thread_for_each_core_and_a_small_one_has_one():
    code = "print(word(1e6), word(1e9), word())"  # the last keeps what was chosen
    assert settled(code) == ["1", "3", "3"]


def test_the_threads_that_its_user_asks_for():
    code = "import os; print(word(1e6), word(1e9), os.environ.get('PJRT_NPROC'))"
    assert settled(code, PJRT_NPROC="7") == ["7", "7", "7"]
    assert settled(code, NPROC="5") == ["5", "5", "None"]
    assert settled(code, NPROC="5", PJRT_NPROC="1", RONDEL_NPROC="1") == ["5", "5", "None"]


def test_what_was_chosen_for_a_program_is_no_wish_of_those_that_it_starts():
    code = """
        import subprocess, sys
        word(1e6)
        code = (
            "from rondel.run.setup import jax_process;"
            "print(jax_process.configure_jax(1e9).split()[-2])"
        )
        print(subprocess.check_output([sys.executable, "-c", code], text=True))
    """
    assert settled(code) == [str(jax_process.cores())]


def test_jax_keeps_the_threads_that_it_started_with():
    code = "import jax; word(1e6); jax.devices(); print(word(1e9))"
    assert settled(code) == ["1"]
    code = "import jax; jax.devices(); print(word(1e6))"  # before anybody has said anything
    assert settled(code) == ["3"]


def test_programs_for_other_numbers_of_threads_are_kept_apart(tmp_path):
    code = """
        import jax
        for work in (1e6, 1e9):
            word(work)
            print(jax.config.jax_compilation_cache_dir.rpartition("/")[2])
    """
    assert settled(code, XDG_CACHE_HOME=str(tmp_path)) == ["threads-1", "threads-3"]
    code = "import jax; word(1e6); print(jax.config.jax_compilation_cache_dir)"
    assert settled(code, JAX_COMPILATION_CACHE_DIR="mine") == ["mine"]


def test_small_networks_are_decided_on_before_anything_starts_jax():
    code = """
        from rondel.run.setup.prepare import prepare
        word()
        prepare("ppo", "CartPole-v1")
        print(word())
        prepare("ppo", "CartPole-v1", fields={"hidden": (512, 512)})
        print(word())
    """
    assert settled(code) == ["1", "3"]


def test_seeds_that_go_on_have_the_threads_that_they_had(tmp_path):
    code = """
        import rondel
        small = {"hidden": (8,), "lanes": 8, "rollout": 16, "minibatches": 1, "eval_episodes": 0}
        rondel.train("ppo", "CartPole-v1", steps=300, seeds=2, out="runs", tuned=False, **small)
        print(sum(len(run.notes) for run in rondel.resume("runs", steps=600)))
    """
    file = tmp_path / "seeds.py"
    file.write_text(textwrap.dedent(code))
    clean = {k: v for k, v in os.environ.items() if "NPROC" not in k and "CACHE" not in k}
    clean |= {"XDG_CACHE_HOME": str(tmp_path)}
    told = subprocess.check_output([sys.executable, file], text=True, env=clean, cwd=tmp_path)
    assert told.splitlines()[-1] == "0"


WIDE = {"lanes": 32, "rollout": 32, "minibatches": 1, "epochs": 2, "hidden": (256, 256)}
LONG = {"lanes": 8, "rollout": 2048, "minibatches": 1, "epochs": 1, "normalise_observations": True}


@pytest.mark.parametrize(
    ("env", "fields", "plan", "on"),
    [
        ("CartPole-v1", WIDE, "actor*2 | learner", "processes"),
        ("CartPole-v1", WIDE, "actor+memory+gradient | update", "processes"),
        ("Pendulum-v1", LONG, "actor | learner", "processes"),
        pytest.param("CartPole-v1", WIDE, "actor*2 | learner", "ray", marks=pytest.mark.long),
        pytest.param("Pendulum-v1", LONG, "actor | learner", "ray", marks=pytest.mark.long),
    ],
)
def test_large_sums_are_split_alike_in_all_processes(env, fields, plan, on, tmp_path):
    run = """
        import hashlib, sys
        import jax, numpy as np, rondel

        env, fields = eval(sys.argv[1])
        with rondel.start("ppo", env, tuned=False, **fields) as run:
            for report in run.rounds(at_a_time=1):
                if report.round == 1:
                    break
            learner = jax.tree.leaves(run.ring.tree()["learner"])
            numbers = b"".join(np.asarray(leaf).tobytes() for leaf in learner)
            print(jax_process.configure_jax().split()[-2], hashlib.sha256(numbers).hexdigest())
    """
    file = tmp_path / "wide.py"
    head = "from rondel.run.setup import jax_process\n\nif __name__ == '__main__':"
    file.write_text(head + textwrap.indent(textwrap.dedent(run), "    "))
    clean = {k: v for k, v in os.environ.items() if "NPROC" not in k and "CACHE" not in k}
    clean |= {"XDG_CACHE_HOME": str(tmp_path)}

    def told(**where):
        command = [sys.executable, file, repr((env, fields | where))]
        return subprocess.check_output(command, text=True, env=clean).splitlines()[-1].split()

    whole = told()
    assert whole[0] == str(jax_process.cores())
    assert told(plan=plan, on=on) == whole


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
        from rondel.run.setup import jax_process
        from rondel.run.setup.prepare import prepare

        jax_process.cores = lambda: 2
        jax_process.configure_jax()
        {before}
        prepare("ppo", "CartPole-v1", fields={{"plan": "{plan}", "lanes": 32, "on": "{on}"}})
        print(jax.local_device_count(), jax_process.configure_jax().split()[-2])
    """)
    told = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert told.split() == [str(devices)] * 2  # XLA has as many threads


def test_programs_that_were_cut_off_are_removed(tmp_path):
    whole = zlib.compress(bytes(range(256)) * 40)
    files = {"good-cache": whole, "half-cache": whole[: len(whole) // 2], "empty-cache": b""}
    files |= {"other-cache": b"\x28\xb5\x2f\xfd of zstandard", "notes": b""}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    jax_process.sweep(tmp_path)
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {"good-cache", "other-cache", "notes", ".looked-at"}


def test_only_what_is_new_is_looked_at(tmp_path):
    jax_process.sweep(tmp_path)
    for name in ("old-cache", "new-cache"):
        (tmp_path / name).write_bytes(b"\x78 damaged")
    os.utime(tmp_path / "old-cache", (1, 1))
    jax_process.sweep(tmp_path)
    assert (tmp_path / "old-cache").exists()
    assert not (tmp_path / "new-cache").exists()


def test_there_may_be_no_cache_yet(tmp_path):
    jax_process.sweep(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
