"""The README's table of speed says what was measured; so do the tables of actors."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCOREBOARD = ROOT / "benchmarks" / "scoreboard"


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(SCOREBOARD)
    for name in ("report", "rows", "venvs", "noise", "run", "actors"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import report

    return report


@pytest.fixture
def actors(report):
    import actors

    return actors


def test_the_readme_shows_what_was_measured(report):
    readme = (ROOT / "README.md").read_text()
    assert report.BEGIN in readme
    assert report.END in readme
    assert report.with_short(readme) == readme, "python benchmarks/scoreboard/run.py --report"


def test_only_rows_that_were_measured_are_shown_and_who_is_ahead_is_shown_ahead(
    report, monkeypatch
):
    shown, unmeasured, left_out = (
        report.Row(name, "a thing", "s", None, ("sb3_x", "sbx_x"), less=True)
        for name in ("shown", "unmeasured", "left out")
    )
    monkeypatch.setattr(report, "ROWS", [shown, unmeasured, left_out])
    monkeypatch.setattr(report, "SHORT", ("shown", "unmeasured"))
    figures = {"figures": {"rondel": [2.0, 4.0, 3.0], "sb3_x": [6.0], "sbx_x": [1.5]}}
    monkeypatch.setattr(report, "load", lambda row: None if row is unmeasured else figures)
    assert report.short().splitlines()[2:] == ["| shown | a thing | 2.00 x SB3, 0.50 x SBX |"]


def test_the_rows_of_the_short_table_exist(report):
    assert {*report.SHORT} <= {row.name for row in report.ROWS}


def test_the_tables_of_actors_show_what_was_measured(actors):
    assert actors.page(actors.load()) == actors.PAGE.read_text(), "actors.py --report"


def test_all_numbers_of_actors_were_measured_at_both_paces_in_both_environments(actors):
    asked = {(p.title, env, n) for p in actors.PACES for env in actors.ENVS for n in actors.ACTORS}
    assert {figure[:3] for figure in actors.load()} == asked


def test_a_row_of_actors_has_the_ratios_first_and_stands_in_the_table_of_its_pace(actors):
    figures = [
        actors.Figure("Free", "slow", 16, processes=7_000.4, ray=1_750, peer=3_500, busy=1.2),
        actors.Figure("In step", "cheap", 1, processes=90, ray=30, peer=60, busy=1),
    ]
    assert actors.line(figures[0]) == "| slow | 16 | 2.00 | 0.50 | 7,000 | 1,750 | 3,500 | 1.20 |"
    _, in_step, free = actors.page(figures).split("## ")
    assert in_step.splitlines()[-2:] == ["| cheap | 1 | 1.50 | 0.50 | 90 | 30 | 60 | 1.00 |", ""]
    assert free.splitlines()[-1] == actors.line(figures[0])


@pytest.mark.parametrize("script", ["scoreboard/actors.py", "distribution/run.py"])
def test_a_benchmark_says_what_it_does(script):
    command = [sys.executable, str(ROOT / "benchmarks" / script), "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "usage: " in told.stdout
