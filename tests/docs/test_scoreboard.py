"""The README's table of speed says what was measured."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks" / "scoreboard")
    for name in ("report", "rows", "venvs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import report

    return report


def test_the_readme_shows_what_was_measured(report):
    readme = (ROOT / "README.md").read_text()
    assert report.BEGIN in readme
    assert report.END in readme
    assert report.with_short(readme) == readme, "python benchmarks/scoreboard/run.py --report"


def test_only_rows_that_were_measured_are_shown_and_who_is_ahead_is_shown_ahead(
    report, monkeypatch
):
    fast, slow = (
        report.Row("quick", "a thing", "s", None, ("sb3_x", "sbx_x"), goal=3, less=True),
        (report.Row("other", "another", "s", None, ("sb3_x",))),
    )
    monkeypatch.setattr(report, "ROWS", [fast, slow])
    figures = {"figures": {"rondel": [2.0, 4.0, 3.0], "sb3_x": [6.0], "sbx_x": [1.5]}}
    monkeypatch.setattr(report, "load", lambda row: figures if row is fast else None)
    assert report.short().splitlines()[2:] == [
        "| quick | a thing | 2.00 x SB3, 0.50 x SBX | 3 x SB3 |"
    ]
