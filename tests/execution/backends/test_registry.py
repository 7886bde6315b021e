"""Backends by name: the table of built-in ones, and the door for those of other packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rondel.errors import RondelError
from rondel.execution.backends import registry

HERE = Path(__file__).parent
RUN = (*("ppo", "CartPole-v1", "--lanes", "16", "--rollout", "16", "--steps", "1024"), "--no-tuned")
CUT = ("--plan", "actor*2 | learner")


def _install(site: Path, name: str, source: str, value: str) -> None:
    """A package as pip would leave it: a module, and what it says of itself."""
    module = value.partition(":")[0]
    (site / f"{module}.py").write_text(source)
    about = site / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[rondel.backends]\n{name} = {value}\n")


@pytest.fixture
def site(tmp_path):
    """Where two packages from elsewhere are installed: one with a backend, and a broken one."""
    site = tmp_path / "site"
    site.mkdir()
    _install(site, "postbox", (HERE / "postbox.py").read_text(), "postbox:INFO")
    _install(site, "crooked", "import a_module_that_there_is_not\n", "crooked:INFO")
    return site


def _rondel(site: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    code = "import sys; from rondel.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, *argv]
    env = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, env=env, cwd=site.parent, text=True, capture_output=True)


def _rows(folder: Path) -> list[dict[str, float]]:
    """What a run wrote of its rounds, without clocks."""
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    timed = ("seconds", "per_second")
    return [{k: v for k, v in row.items() if not any(t in k for t in timed)} for row in rows]


def test_a_backend_of_another_package_gives_the_numbers_of_inline(site):
    found = {}
    for on in ("inline", "postbox"):
        done = _rondel(site, "train", *RUN, *CUT, "--on", on, "--out", str(site / on))
        assert done.returncode == 0, done.stderr
        found[on] = _rows(site / on)
    assert len(found["inline"]) == 5
    assert found["postbox"] == found["inline"]
    states = [*(site / "inline").rglob("state.safetensors")]
    assert states
    for state in states:
        other = site / "postbox" / state.relative_to(site / "inline")
        assert other.read_bytes() == state.read_bytes()


LOWERED = """
import sys, jax, rondel
small = {"lanes": 16, "rollout": 16, "tuned": False, "plan": "all*2"}
for on in sys.argv[1:]:
    with rondel.start("ppo", "CartPole-v1", steps=512, on=on, **small) as run:
        assert run.setup.lowering == run.ring.lowering
        print(run.ring.lowering.kind.value, run.ring.lowering.in_driver, len(run.ring.policy))
        list(run)
    page = str(rondel.explain("ppo", "CartPole-v1", on=on, **small)).splitlines()
    print(*(row for row in page if row.startswith("on ")))
assert jax.local_device_count() == 2
"""


def test_what_is_explained_is_what_runs_also_for_a_backend_that_says_little(site):
    """Of each backend; one leaves all that a record may leave out."""
    little = (HERE / "postbox.py").read_text().replace("postbox", "parcel")
    little = little.replace('    "a parcel",\n', "")
    _install(site, "parcel", little, "parcel:INFO")
    names = ["inline", "threads", "processes", "postbox", "parcel"]
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run(
        [sys.executable, "-c", LOWERED, *names],
        env=os.environ | {"PYTHONPATH": path} | devices,
        cwd=site.parent,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    of_two = "for each of 2 copies, in this process"
    assert lines == [
        *("data parallel True 1", "on inline: in this process, on 2 devices"),
        *("rounds False 2", f"on threads: a thread {of_two}"),
        *("rounds False 2", "on processes: 3, the driver and one for each of 2 copies"),
        *("rounds False 2", f"on postbox: a postbox {of_two}"),
        *("rounds False 2", f"on parcel: a worker {of_two}"),
    ]


def test_it_is_explained_listed_and_in_the_help(site):
    said = _rondel(site, "explain", *RUN, *CUT, "--on", "postbox")
    assert "postbox: a postbox for each of 3 copies, in this process" in said.stdout, said.stderr
    listed = _rondel(site, "list", "backends")
    assert "postbox      a thread for each copy, which sees its messages by post" in listed.stdout
    assert "Backend 'crooked' of the package crooked can't be loaded: " in listed.stdout
    helped = " ".join(_rondel(site, "train", "ppo", "CartPole-v1", "--help").stdout.split())
    for name in ("inline", "threads", "processes", "ray", "postbox", "crooked"):
        assert name in helped


def test_a_broken_package_is_a_sentence_with_its_name(site):
    done = _rondel(site, "train", *RUN, "--on", "crooked")
    assert done.returncode == 2
    assert done.stderr.strip().endswith(
        "Backend 'crooked' of the package crooked can't be loaded: ModuleNotFoundError: No module "
        "named 'a_module_that_there_is_not'. Repair or uninstall that package."
    )


def test_what_is_no_record_is_refused(site, monkeypatch):
    _install(site, "stone", "INFO = 'a stone'\n", "stone:INFO")
    monkeypatch.syspath_prepend(site)
    with pytest.raises(RondelError, match="stone:INFO must be a BackendInfo of that name"):
        registry.find("stone")


def test_a_backend_whose_library_is_absent_says_how_to_install_it():
    def make(options: registry.BackendOptions):
        raise ModuleNotFoundError("No module named 'mpi4py'")

    info = registry.BackendInfo("mpi", "ranks", make, install="pip install mpi4py")
    with pytest.raises(RondelError, match=r"needs a package .* Install it: pip install mpi"):
        info.create(registry.BackendOptions())


def test_nothing_heavy_is_imported_to_know_what_backends_can_do():
    code = (
        "import sys; from rondel.execution.backends import registry; registry.listing();"
        "print([m for m in ('jax', 'numpy', 'ray') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "[]"
