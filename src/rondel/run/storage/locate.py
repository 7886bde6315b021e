"""Where on disk the checkpoints of a run are, and what to give where a path leads to none.

run/checkpoints/000007/    numbered, the newest last; see `checkpoint` for what is in them
"""

from __future__ import annotations

import shlex
from pathlib import Path

from rondel.errors import RondelError

STATE, MEMORY, META = "state.safetensors", "memory.safetensors", "meta.json"


def find_checkpoint(path: Path) -> Path:
    """The newest checkpoint of a run, given its folder; one checkpoint is itself."""
    path = Path(path)
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
    begin = f"start it again by the same `rondel train` with --out {shlex.quote(str(path))}"
    if not there:
        raise RondelError(
            f"{path} holds no checkpoint: there is no such folder. Give the folder of a run, or "
            f"one of the numbered folders under its checkpoints. If the run was killed early, "
            f"{begin}."
        )
    raise RondelError(
        f"{path} holds no checkpoint: nothing was saved in it, nor in {path / 'checkpoints'}, "
        "where a run keeps them. Give the folder of a run that has saved one. If the run was "
        f"killed before it had, {begin}: the folder may be used again."
    )


def numbered_checkpoint(path: str | Path, number: int) -> Path:
    """One checkpoint of the run in a folder, by its number."""
    there = {int(found.name): found for found in listed_if_possible(Path(path) / "checkpoints")}
    if number not in there:
        refuse_several(Path(path))
        known = ", ".join(map(str, there)) or "none"
        raise RondelError(f"{path} has no checkpoint {number}; there are: {known}.")
    return there[number]


def refuse_several(path: Path) -> None:
    """Say which to give, where a folder holds runs and is none."""
    if seeds := sorted(p for p in path.glob("seed-*") if (p / "checkpoints").is_dir()):
        raise RondelError(
            f"{path} holds the runs of {len(seeds)} seeds: give one of them, such as {seeds[0]}."
        )
    below = (p for glob in ("*", "*/seed-*") for p in path.glob(glob))
    if runs := sorted(p for p in below if (p / "checkpoints").is_dir()):
        raise RondelError(
            f"{path} holds a run: give {runs[0]}."
            if len(runs) == 1
            else f"{path} holds {len(runs)} runs: give one of them, such as {runs[0]}."
        )


def refuse_file(path: Path) -> None:
    """Say which folder to give, where a file was given."""
    if path.is_file():
        above = (p for p in path.parents if (p / META).exists() or listed(p / "checkpoints"))
        home = next((f", such as {folder}," for folder in above), "")
        raise RondelError(f"{path} is a file: the folder of a run{home} would work.")


def listed(root: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    if not root.is_dir():
        return []
    found = [path for path in root.iterdir() if path.name.isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name))


def listed_if_possible(root: Path) -> list[Path]:
    """The same; none where the folder can't be read."""
    try:
        return listed(root)
    except OSError:
        return []
