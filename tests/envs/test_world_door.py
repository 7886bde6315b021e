"""The door for worlds of other packages: an entry point brings one, and it is trained on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rondel.envs import registry
from rondel.errors import RondelError

SOURCE = (Path(__file__).parent / "lattice.py").read_text()
SMALL = ("--lanes", "16", "--rollout", "16", "--steps", "256", "--eval-episodes", "2", "--no-tuned")


def _install(site: Path, name: str, source: str) -> None:
    """A package as pip would leave it: a module, and what it says of itself."""
    (site / f"{name}.py").write_text(source)
    about = site / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[rondel.worlds]\n{name} = {name}:INFO\n")


@pytest.fixture
def site(tmp_path):
    """Where two packages from elsewhere are installed: one with a world, and a broken one."""
    _install(tmp_path, "lattice", SOURCE)
    _install(tmp_path, "crooked", "import a_module_that_there_is_not\n")
    return tmp_path


def _rondel(site: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "rondel", *argv]
    env = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, env=env, cwd=site, text=True, capture_output=True)


@pytest.mark.parametrize(
    ("asked", "found", "plan"),
    [
        ("Line-v0", "lattice:Line-v0", "all"),  # an id without a world finds it too
        ("lattice:Line-v0?size=2", "lattice:Line-v0?size=2", "all"),
        ("lattice:Host-v0", "lattice:Host-v0", "actor*2 | learner"),
    ],
)
def test_a_world_of_another_package_is_trained_on(site, asked, found, plan):
    done = _rondel(site, "train", "ppo", asked, *SMALL, "--plan", plan, "--out", "run")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(row) for row in (site / "run/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["steps"] >= 256
    meta = json.loads(next((site / "run").rglob("meta.json")).read_text())
    assert meta["meta"]["env"] == found
    again = _rondel(site, "eval", "run", "--episodes", "2")  # its id is enough: no --env
    assert again.returncode == 0, again.stderr


def test_worlds_and_their_ids_are_listed_and_a_broken_one_says_why(site):
    listed = _rondel(site, "list", "worlds").stdout
    assert "lattice      points on a line, of another package\n" in listed
    assert "crooked      World 'crooked' of the package crooked can't be loaded: Module" in listed
    ids = _rondel(site, "list", "envs", "lattice:")
    assert ids.stdout.split() == ["lattice:Line-v0", "lattice:Host-v0", "lattice:LunarLander-v9"]
    assert "World 'crooked' of the package crooked can't be loaded" in ids.stderr


def test_a_near_name_and_a_broken_package_are_sentences(site):
    done = _rondel(site, "explain", "ppo", "lattice:Lime-v0")
    assert done.returncode == 2
    near = "There is no environment 'lattice:Lime-v0'. Did you mean lattice:Line-v0?"
    assert done.stderr.endswith(f"rondel: {near}\n")
    done = _rondel(site, "explain", "ppo", "lattice:CartPole-v1")  # other worlds have it
    assert done.stderr.endswith(" lattice has Line-v0, Host-v0, LunarLander-v9.\n")
    done = _rondel(site, "explain", "ppo", "crooked:Line-v0")
    assert done.returncode == 2
    assert done.stderr.strip().endswith(
        "World 'crooked' of the package crooked can't be loaded: ModuleNotFoundError: No module "
        "named 'a_module_that_there_is_not'. Repair or uninstall that package."
    )


def test_it_says_what_it_can_do(site, monkeypatch):
    monkeypatch.syspath_prepend(site)
    world = registry.world_of("lattice:Line-v0")
    assert world is not None
    assert world.threads
    assert registry.id_without_world("lattice:Line-v0?size=2") == "Line-v0"
    with pytest.raises(RondelError, match=r"^lattice:LunarLander-v9 needs a rocket\.$"):
        registry.make("LunarLander-v9")


def test_what_is_no_record_is_refused(tmp_path, monkeypatch):
    _install(tmp_path, "pebble", "INFO = 'a pebble'\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RondelError, match="pebble:INFO must be a World of that name"):
        registry.find("pebble")


def test_nothing_heavy_is_imported_to_know_what_worlds_can_do():
    code = (
        "import sys; from rondel.envs import registry; registry.listing();"
        "print([m for m in ('jax', 'gymnasium', 'envpool') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_world_that_makes_no_environment_is_told_what_would_do(tmp_path):
    _install(tmp_path, "hollow", SOURCE.replace("lattice", "hollow").replace("Host()", "5"))
    done = _rondel(tmp_path, "explain", "ppo", "hollow:Host-v0")
    assert done.returncode == 2
    assert "hollow:Host-v0 must return a gymnasium.Env" in done.stderr
