"""Environments that end or hang a command before its run has begun."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.fault

MAIN = """
import sys
from rondel.execution.telemetry import timeouts
from rondel.cli import main
timeouts.START = 1.0
main.main(sys.argv[1:])
"""
ENVS = """
import os, time
from envs.strange import Plain

class Leaves(Plain):
    def step(self, action):
        os._exit(0)

class Hangs(Plain):
    def step(self, action):
        time.sleep(3600)

class NeverMade(Plain):
    def __init__(self):
        time.sleep(3600)
"""


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (
            "Leaves",
            "os._exit was called in this process, by an environment or a library. It was in step(",
        ),
        ("Hangs", "own:Hangs has taken 1 s in step("),
        ("NeverMade", "own:NeverMade has taken 1 s in make() when it was tried out before"),
    ],
)
def test_nobody_takes_it_for_a_run(env: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ENVS)
    path = f"import sys; sys.path[:] = {sys.path!r}\n"
    asked = f"train ppo mine:{env} --steps 100 --deadline 0.5 --out run".split()
    ended = subprocess.run(
        [sys.executable, "-c", path + MAIN, *asked],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert f"rondel: {said}" in ended.stderr
    assert (ended.returncode, ended.stdout) == (2, "")
    assert not (tmp_path / "run").exists()
