"""Can EnvPool draw an environment on this machine? It is tried in a process of its own.

MuJoCo inside EnvPool ends its whole process where it finds no OpenGL, and leaves a log in the
folder that it runs in: this happens to the other process, in a folder that goes with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import Any

from rondel.envs.envpool.pool import DRAWN, make_pool

_PATIENCE = 60.0  # seconds for the first picture; about two are usual


def can_be_drawn(task: str, arguments: dict[str, Any]) -> bool:
    """Does EnvPool have a picture of this environment, and live to show it?"""
    command = [sys.executable, "-m", __name__, task, json.dumps(arguments)]
    seen = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    with tempfile.TemporaryDirectory() as folder, suppress(subprocess.TimeoutExpired):
        tried = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": seen},
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
        return tried.returncode == 0
    return False


def _try(task: str, arguments: dict[str, Any]) -> None:
    pool = make_pool(task, task, arguments | DRAWN, [0])
    pool.reset()
    pool.render()


if __name__ == "__main__":
    _try(sys.argv[1], json.loads(sys.argv[2]))
