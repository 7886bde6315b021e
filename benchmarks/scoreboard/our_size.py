"""Megabytes of Rondel, and of an environment with nothing but what it needs."""

import subprocess
from pathlib import Path

import venvs

SOURCE = Path(__file__).parents[2] / "src" / "rondel"

needed = [venvs.python("rondel"), str(venvs.PEERS / "rondel_size.py")]
said = subprocess.run(needed, capture_output=True, text=True, check=True)
ours = sum(file.stat().st_size for file in SOURCE.rglob("*.py"))
print(float(said.stdout) + ours / 2**20)
