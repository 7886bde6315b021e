"""Checkpoints on disk by the path of a run, and which path to use if there is none.

run/checkpoints/000007/    numbered, the newest last; `checkpoint` reads and writes them
"""

from __future__ import annotations

import shlex
from pathlib import Path

from rondel.errors import RondelError

STATE, MEMORY, META = "state.safetensors", "memory.safetensors", "meta.json"


def find_checkpoint(path: Path) -> Path:
    """The newest checkpoint in a run's folder, or the checkpoint itself."""
    try:
        if (path / META).exists() or (path / STATE).exists():
            return path
        for root in (path / "checkpoints", path):
            if found := listed(root):
                return found[-1]
        there = path.is_dir()
        refuse_file(path)
    except OSError as error:
        raise RondelError(f"{path} can't be read: {error.strerror}.") from error
    refuse_several(path)
    if not there:
        raise RondelError(
            f"{path} holds no checkpoint: there is no such folder. Use the folder of a run, or a "
            "numbered folder in its checkpoints."
        )
    raise RondelError(
        f"{path} holds no checkpoint: no run has saved one there. If it was killed before that, "
        f"start it again with the same `rondel train` and --out {shlex.quote(str(path))}."
    )


def refuse_several(path: Path) -> None:
    """Refuse a folder that holds runs, and name one of them."""
    below = (p for glob in ("*", "*/seed-*") for p in path.glob(glob))
    if runs := sorted(p for p in below if (p / "checkpoints").is_dir()):
        raise RondelError(f"{path} is a folder of runs. Use one of them, such as {runs[0]}.")


def refuse_file(path: Path) -> None:
    """Refuse a file, and name the run's folder that it is in."""
    if path.is_file():
        above = (p for p in path.parents if (p / META).exists() or listed(p / "checkpoints"))
        home = next((f", such as {folder}" for folder in above), "")
        raise RondelError(f"{path} is a file. Use the folder of a run{home}.")


def listed(root: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    if not root.is_dir():
        return []
    found = [path for path in root.iterdir() if path.name.isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name))


def listed_if_possible(root: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first; none if it can't be read."""
    try:
        return listed(root)
    except OSError:
        return []
