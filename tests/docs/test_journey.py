"""The journey of a round, as docs/development/architecture.md tells it, is what a run does."""

import inspect
import re
import sys
import threading
from importlib import import_module
from pathlib import Path

import pytest

from rondel.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/development/architecture.md").read_text()
SMALL = "--lanes 16 --rollout 8 --minibatches 2 --epochs 1 --steps 512 --eval-episodes 0 --no-tuned"
_JOURNEY = PAGE.partition("## The journey of a round")[2]
WHOLE, CUT = re.findall(r"^\| stop .*?(?=\n\n)", _JOURNEY, re.MULTILINE | re.DOTALL)


def stops(table):
    """(stop, code) of each row of a table: a function's code, of a class that of its `__init__`."""
    for row in table.splitlines()[2:]:
        stop, place = (cell.strip(" `") for cell in row.split("|")[1:3])
        module, _, name = place.partition(":")
        found = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        code = found.__init__.__code__ if inspect.isclass(found) else found.__code__
        yield stop, code


@pytest.fixture
def entered(tmp_path):
    """Run `rondel train` -> the code of all functions that it enters in this process, in order."""

    def run(*options):
        seen = {}

        def note(frame, event, _):
            if event == "call":
                seen.setdefault(frame.f_code, len(seen))

        command = ["train", "ppo", "CartPole-v1", *SMALL.split(), "--out", str(tmp_path / "run")]
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            main([*command, *options])
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        return seen

    return run


def test_an_uncut_run_makes_all_stops_in_order(entered):
    seen = entered("--plan", "all")
    order = [seen.get(code, f"stop {stop} is not made") for stop, code in stops(WHOLE)]
    made = order[:12]  # what an algorithm computes, and hooks, are made before the first round
    assert made == sorted(made), order
    assert all(isinstance(place, int) for place in order), order


@pytest.mark.parametrize(
    ("on", "elsewhere"), [("processes", {"9b", "10"}), ("threads", {"9", "9a"})]
)
def test_a_cut_run_makes_the_other_stops(on, elsewhere, entered):
    seen = entered("--plan", "actor*2 | learner", "--on", on)
    missing = {stop for stop, code in stops(CUT) if code not in seen}
    assert missing == elsewhere


def test_the_six_files_are_those_of_the_page_on_the_ring():
    ring = (ROOT / "docs/the-ring.md").read_text()
    files = re.compile(r"^\d\. `([\w/]+\.py)`", re.MULTILINE)
    six = files.findall(PAGE.partition("## Read a training step in six files")[2])
    assert len(six) == 6
    assert six == files.findall(ring.partition("## Follow one training step")[2])
