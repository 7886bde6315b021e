"""A trial, in another process, whether EnvPool can draw an environment on this machine.

MuJoCo inside EnvPool ends the process if it finds no OpenGL, and writes a log to the working
folder: both happen to that process, in a temporary folder.
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

_TIMEOUT = 60.0  # seconds for the first picture, which usually takes two


def can_be_drawn(task: str, arguments: dict[str, Any]) -> bool:
    """Whether EnvPool draws this environment without ending the process."""
    command = [sys.executable, "-m", __name__, task, json.dumps(arguments)]
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
    with tempfile.TemporaryDirectory() as folder, suppress(subprocess.TimeoutExpired):
        tried = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
        return tried.returncode == 0
    return False


if __name__ == "__main__":
    pool = make_pool(sys.argv[1], sys.argv[1], json.loads(sys.argv[2]) | DRAWN, [0])
    pool.reset()
    pool.render()
