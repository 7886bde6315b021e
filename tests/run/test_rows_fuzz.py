"""metrics.jsonl with anything in it: rows are read, kept and drawn as far as they are rows."""

import json
import os

import pytest
from hypothesis import strategies as st

from fuzz import QUICK_AND_LONG, anything, holds, mutated, numbers
from rondel.errors import RondelError
from rondel.run.analysis import learning_curve
from rondel.run.storage import metrics_file
from rondel.run.storage.metrics_file import MetricsFile

pytestmark = pytest.mark.fault

GOOD = b'{"steps": 10, "return_mean": 1.5, "seconds": 0.1}\n{"steps": 20, "return_mean": 2}\n'
names = st.sampled_from(["steps", "return_mean", "seconds", "x"])
rows = st.lists(st.dictionaries(names, numbers | anything) | anything, max_size=4)
files = st.one_of(
    st.binary(max_size=80),
    mutated(GOOD),
    rows.map(lambda rows: "\n".join(map(json.dumps, [*rows, {}])).encode()),
)


@QUICK_AND_LONG
def test_any_file_is_read_and_goes_on_with_whole_rows(effort, tmp_path):
    path = tmp_path / "metrics.jsonl"

    def one(data):
        path.write_bytes(data)
        before = metrics_file.read(path)
        with MetricsFile(path, resume_at=15) as recorder:
            kept = metrics_file.read(path)
            recorder.write({"steps": 16})
        assert kept == before[: len(kept)] or any(v != v for row in kept for v in row.values())
        assert metrics_file.read(path)[-1] == {"steps": 16}
        assert path.read_bytes().endswith(b'\n{"steps": 16}\n') or not kept

    holds(one, files, 100 * effort)


@QUICK_AND_LONG
def test_any_file_is_drawn(effort, tmp_path):
    path = tmp_path / "metrics.jsonl"

    def one(data):
        path.write_bytes(data)
        learning_curve.draw_curve(tmp_path, "anything")

    holds(one, files, 6 * effort)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_a_sentence_and_no_wait(tmp_path, make):
    path = tmp_path / "metrics.jsonl"
    make(path)
    for use in (metrics_file.read, MetricsFile, lambda path: MetricsFile(path, resume_at=3)):
        with pytest.raises(RondelError, match="must be a regular file: move it"):
            use(path)
