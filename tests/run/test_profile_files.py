"""A profile in a folder: read as it was written, and nothing else is."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import rondel
from rondel.errors import RondelError
from rondel.run.profiling import run_profile
from run.made_up import APART, FUSED, IDLE, made_up

GOOD = made_up(FUSED, driver=IDLE, stages=APART)
PLAIN = {k: v for k, v in dataclasses.asdict(GOOD).items() if k != "advice"}


def spoiled(*path: Any) -> str:
    """What was written, with the last of these at the place that the others name."""
    *places, last, value = path
    wrong: Any = json.loads(json.dumps(PLAIN))
    at = wrong
    for place in places:
        at = at[place]
    at[last] = value
    return json.dumps(wrong)


SHARE = ("pieces", 0, 2, 0)
WRONG = [
    *("", "[]", "{}", '{"pieces": 3}', '{"pieces": [[1]]}', "[" * 9999),
    *(spoiled("pieces", pieces) for pieces in ([], [[1, 1, []]], [["all", 1, [["env"]], []]])),
    *(spoiled("facts", 3, lanes) for lanes in ("many", -1)),
    *(spoiled("stages", stages) for stages in ({}, {"env": "much"}, {"env": float("inf")})),
    *(spoiled("pieces", 0, 1, copies) for copies in (-3, 0)),
    *(spoiled(*SHARE, 2, part) for part in ("x", -0.5, 7.0, float("nan"), float("inf"))),
    *(spoiled(*SHARE, 0, stage) for stage in ("\x1b[31mred", "two\nlines")),
    spoiled("facts", 9, "\x1b]0;title\x07"),
]


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    run_profile.write_profile(tmp_path, GOOD)
    assert run_profile.read_profile(tmp_path) == GOOD
    assert {path.name for path in tmp_path.iterdir()} == {run_profile.FILE}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_profile_gets_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / run_profile.FILE).write_text(text)
    with pytest.raises(RondelError, match="is not a profile"):
        rondel.profile(tmp_path)


def test_a_run_without_a_profile_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RondelError, match="A run writes it at its end"):
        run_profile.read_profile(tmp_path)
