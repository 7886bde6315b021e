"""The virtual environment of a peer, made once from pinned requirements.

`peers/NAME.txt` pins what `peers/NAME_*.py` import. An environment is made again when that file
changes. It gets its name only when all is installed, so none is half-made.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
CACHE = Path(os.environ.get("RONDEL_BENCH_CACHE", ".bench"))
HERE = "here"  # the name of the environment that runs us


def python(name: str) -> str:
    """The interpreter of a peer's environment, which is made if it doesn't exist."""
    if name == HERE:
        return sys.executable
    pins = PEERS / f"{name}.txt"
    digest = hashlib.sha256(pins.read_bytes()).hexdigest()[:10]
    home = CACHE.absolute() / f"{name}-{digest}"
    if not home.exists():
        print(f"installing {name}, once, into {CACHE}/{home.name}", flush=True)
        _make(home, pins)
    return str(home / "bin" / "python")


def _make(home: Path, pins: Path) -> None:
    made = home.with_name(f"{home.name}.part")
    shutil.rmtree(made, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(made)], check=True)
    pip = [str(made / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--requirement", str(pins)], check=True)
    made.rename(home)  # scripts in bin name the old place, but we only run its python


def versions(name: str) -> dict[str, str]:
    """The installed versions of a peer's pinned packages."""
    if name == HERE:
        return {"flashbax": version("flashbax")}
    lines = (PEERS / f"{name}.txt").read_text().splitlines()
    wanted = {line.split("==")[0].split("[")[0].lower() for line in lines if "==" in line}
    listed = subprocess.run(
        [python(name), "-m", "pip", "list", "--format", "json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = {p["name"].lower().replace("_", "-"): p["version"] for p in json.loads(listed.stdout)}
    return {package: found[package] for package in sorted(wanted) if package in found}
