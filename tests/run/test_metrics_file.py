"""metrics.jsonl: whole rows only, also after a kill and a resume."""

import json

import numpy as np
import pytest

from rondel.errors import RondelError
from rondel.run.storage import metrics_file
from rondel.run.storage.metrics_file import MetricsFile


def write(path, steps, resume_at=None):
    with MetricsFile(path, resume_at) as recorder:
        for n in steps:
            recorder.write({"steps": n, "loss/policy": n / 10})


def steps_in(path):
    return [row["steps"] for row in metrics_file.read(path)]


def test_a_row_is_in_the_file_when_write_returns(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    recorder = MetricsFile(path)
    recorder.write({"round": 1, "steps": 32, "loss/policy": -0.5, "env": "jax:CartPole-v1"})
    row = {"round": 1, "steps": 32, "loss/policy": -0.5, "env": "jax:CartPole-v1"}
    assert metrics_file.read(path) == [row]
    recorder.close()


def test_what_is_not_finite_is_null_and_array_scalars_are_numbers(tmp_path):
    path = tmp_path / "metrics.jsonl"
    values = [float("nan"), np.float32("inf"), np.float32(0.5), np.int64(3), np.array(2.0), None]
    with MetricsFile(path) as recorder:
        recorder.write({str(i): value for i, value in enumerate(values)})
    assert path.read_text() == '{"0": null, "1": null, "2": 0.5, "3": 3, "4": 2.0, "5": null}\n'


def test_two_at_a_time_are_refused_and_lose_nothing(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as first:
        first.write({"steps": 1})
        for resume_at in (None, 0, 1):
            with pytest.raises(RondelError, match="Another process is still writing to the run in"):
                MetricsFile(path, resume_at)
        first.write({"steps": 2})
    assert steps_in(path) == [1, 2]
    write(path, [2, 3], resume_at=1)  # once the first has ended
    assert steps_in(path) == [1, 2, 3]


def test_a_new_run_begins_a_new_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [1, 2, 3])
    write(path, [7])
    assert steps_in(path) == [7]


@pytest.mark.parametrize(
    ("at", "kept"), [(0, []), (20, [10, 20]), (25, [10, 20]), (99, [10, 20, 30])]
)
def test_a_resumed_run_has_no_region_twice(tmp_path, at, kept):
    path = tmp_path / "metrics.jsonl"
    write(path, [10, 20, 30])
    write(path, [at + 1], resume_at=at)
    assert steps_in(path) == [*kept, at + 1]


def test_every_half_of_a_last_line_is_read_over_and_dropped_by_a_resume(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [10, 20])
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole)):
        path.write_bytes(whole[:end])
        assert steps_in(path) == [10]
        write(path, [20], resume_at=20)
        assert path.read_bytes() == whole


def test_there_may_be_no_file_yet(tmp_path):
    assert metrics_file.read(tmp_path / "metrics.jsonl") == []
    write(tmp_path / "metrics.jsonl", [1], resume_at=100)
    assert steps_in(tmp_path / "metrics.jsonl") == [1]


def test_every_line_is_json_for_strict_readers(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricsFile(path) as recorder:
        recorder.write({"steps": 1, "loss": np.float64("-inf")})

    def refuse(word):
        raise AssertionError(word)

    assert json.loads(path.read_text(), parse_constant=refuse) == {"steps": 1, "loss": None}


def test_a_place_that_can_not_be_written_is_a_sentence(tmp_path):
    (tmp_path / "run").write_text("a file, not a folder")
    with pytest.raises(RondelError, match=r"metrics.jsonl can't be written: .*\. Make space"):
        MetricsFile(tmp_path / "run" / "metrics.jsonl")
