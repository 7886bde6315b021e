"""Files that appear whole or not at all, and replace others only on request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rondel.errors import RondelError


def refuse_to_replace(path: Path, overwrite: bool) -> None:
    """Refuse a file that exists or has no folder, before work is done for it."""
    if path.exists() and not overwrite:
        raise RondelError(
            f"{path} already exists. Use another file, or overwrite=True (--overwrite on the "
            "command line)."
        )
    if not path.absolute().parent.is_dir():
        raise RondelError(f"{path} can't be written: there is no folder {path.parent}. Make it.")


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A path to write to in this block, renamed to `path` if the block ends without an error."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        with suppress(OSError):
            partial.unlink()


@contextmanager
def explain_failure(what: str) -> Iterator[None]:
    """Turn a system's error in this block, which writes `what`, into a sentence."""
    try:
        yield
    except OSError as error:
        raise RondelError(
            f"{what} can't be written: {error.strerror or error}. Make space there, make the "
            "folder writable, or use another one."
        ) from error


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file in one step: it is never seen half written."""
    with atomic_write(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
