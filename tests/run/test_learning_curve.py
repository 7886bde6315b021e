"""The learning curve: a picture whatever the run recorded."""

import os
import subprocess
import sys

import numpy as np
import pytest

from rondel.errors import RondelError
from rondel.run.analysis import learning_curve
from rondel.run.storage.metrics_file import MetricsFile


def record(folder, returns):
    with MetricsFile(folder / "metrics.jsonl") as recorder:
        for i, value in enumerate(returns):
            recorder.write({"steps": (i + 1) * 100, "return_mean": value})


def pixels(path):
    from matplotlib.image import imread

    return imread(path)


@pytest.mark.parametrize("count", [1, 5, 200])
def test_a_picture_of_the_returns(tmp_path, count):
    record(tmp_path, [None, *np.linspace(0, 10, count)])
    path = learning_curve.draw_curve(tmp_path, "ppo on $x_{$")  # a name is not a formula
    assert path == tmp_path / "curve.png"
    assert {p.name for p in tmp_path.iterdir()} == {"metrics.jsonl", "curve.png"}
    ink = [int(learning_curve.INK[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    drawn = np.abs(pixels(path)[..., :3] - ink).max(-1) < 0.02
    assert drawn.any()


def test_evaluations_have_a_line_of_their_own(tmp_path):
    record(tmp_path, [1.0, 2.0])
    ink = [int(learning_curve.EVALUATED[i : i + 2], 16) / 255 for i in (1, 3, 5)]

    def drawn():
        shown = pixels(learning_curve.draw_curve(tmp_path, "ppo"))[..., :3]
        return (np.abs(shown - ink).max(-1) < 0.02).any()

    assert not drawn()
    with MetricsFile(tmp_path / "metrics.jsonl") as recorder:
        for steps in (100, 200):
            recorder.write({"steps": steps, "return_mean": 1.0, "eval_return": 3.0})
    assert drawn()


def test_without_an_episode_the_picture_says_so(tmp_path):
    record(tmp_path, [None, None])
    blank = pixels(learning_curve.draw_curve(tmp_path, ""))
    height, width, _ = blank.shape
    middle = blank[height // 3 : 2 * height // 3, width // 3 : 2 * width // 3, :3]
    assert (middle < 0.6).any()
    (tmp_path / "metrics.jsonl").unlink()
    assert (pixels(learning_curve.draw_curve(tmp_path, "")) == blank).all()


def test_a_failed_write_keeps_the_last_picture(tmp_path, monkeypatch):
    record(tmp_path, [1.0, 2.0])
    before = learning_curve.draw_curve(tmp_path, "before").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RondelError, match="No space left on device"):
        learning_curve.draw_curve(tmp_path, "after")
    assert (tmp_path / "curve.png").read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"metrics.jsonl", "curve.png"}


def test_smoothing_keeps_a_line_straight_in_the_middle_and_means_at_the_ends():
    values = np.arange(80.0)
    smooth = learning_curve._smoothed(values)  # 2 neighbours on each side
    np.testing.assert_allclose(smooth[2:-2], values[2:-2])
    # at the left end: (0 + 1 + 2) / 3, (0 + 1 + 2 + 3) / 4
    np.testing.assert_allclose(smooth[:2], [1.0, 1.5])


def test_importing_what_shows_a_run_is_quick():
    """Neither jax nor matplotlib is loaded before it is needed."""
    check = (
        "import sys, rondel.run.analysis.learning_curve, rondel.run.storage.metrics_file;"
        "import rondel.run.display.display;"
        "sys.exit(bool({'jax', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0
