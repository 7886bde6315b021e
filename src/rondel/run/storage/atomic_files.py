"""Files that are whole or not there, and replace nothing unasked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rondel.errors import RondelError


def refuse_to_replace(path: Path, overwrite: bool) -> None:
    """Say that a file is there, or its folder is not, before work is done for it."""
    if path.exists() and not overwrite:
        raise RondelError(
            f"{path} is there already: choose another file, or say overwrite=True (--overwrite on "
            "the command line)."
        )
    if not path.absolute().parent.is_dir():
        raise RondelError(f"{path} can't be written: there is no folder {path.parent}.")


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Where to write a file inside: behind that it has its name, all of it or nothing."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        with suppress(OSError):
            partial.unlink()


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file, all of it or nothing."""
    with atomic_write(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
