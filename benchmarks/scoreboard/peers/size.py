"""Megabytes of the packages in this environment, as they are before anything has run."""

import sysconfig
from pathlib import Path


def megabytes():
    files = Path(sysconfig.get_paths()["purelib"]).rglob("*")
    kept = (f for f in files if f.is_file() and "__pycache__" not in f.parts)
    return sum(f.stat().st_size for f in kept) / 2**20
