"""The tables of results.md: each stands between two marks."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).with_name("results.md")


def write(name: str, lines: list[str]) -> None:
    """Replace what is between the marks of that name."""
    before, _, after = _parts(name)
    begin, end = _marks(name)
    _PAGE.write_text("\n".join([before + begin, *lines, end + after]))


def merge(name: str, head: list[str], row: str) -> None:
    """Add a row to a table, or replace that of the same run and backend.

    A table with another head is from an older script, and goes.
    """
    old = _parts(name)[1].strip().splitlines()
    rows = old[len(head) :] if old[: len(head)] == head else []
    at = [_key(head, each) for each in rows]
    key = _key(head, row)
    if key in at:
        rows[at.index(key)] = row
    else:
        rows.append(row)
    write(name, [*head, *rows])


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name} -->", f"<!-- end of {name} -->"


def _parts(name: str) -> tuple[str, str, str]:
    begin, end = _marks(name)
    before, found, rest = _PAGE.read_text().partition(begin)
    inside, ended, after = rest.partition(end)
    if not found or not ended:
        raise SystemExit(f"{_PAGE} has no {begin} with {end} after it: put them where it belongs.")
    return before, inside, after


def _key(head: list[str], row: str) -> tuple[str, ...]:
    """What the columns `run` and `on` say."""
    names = _cells(head[0])
    return tuple(_cells(row)[names.index(name)] for name in ("run", "on"))


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)]
