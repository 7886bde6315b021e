"""Runs side by side: groups, names, intervals, and who may be called ahead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rondel
from rondel.cli import main
from rondel.errors import RondelError
from rondel.run.analysis import learning_curve

META = {
    "algorithm": "ppo",
    "env": "jax:CartPole-v1",
    "config": {"clip": 0.2, "rollout": 64},
    "options": {"plan": "all", "lag": 0, "free": False, "on": "inline", "lanes": 8},
}


def run(
    folder: Path,
    seed: int,
    returns: list[Any],
    every: int = 100,
    began: float = 0.0,
    **other: Any,
) -> Path:
    """The folder of a run whose mean return was `returns[i]` after `every * (i + 1)` steps."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(META | {"seed": seed} | other))
    rows = [
        {"steps": every * (i + 1), "seconds": began + i + 1.0, "return_mean": value}
        for i, value in enumerate(returns)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def options(**other: Any) -> dict[str, Any]:
    return {"options": META["options"] | other}  # type: ignore[operator]


def test_seeds_of_one_kind_are_one_line_after_as_many_steps_as_all_have(tmp_path: Path) -> None:
    run(tmp_path / "a", 0, [1, 10, 400])  # 300 steps
    run(tmp_path / "b", 1, [2, 20])  # 200 steps, and so is what is compared
    (row,) = rondel.compare(tmp_path).rows("CartPole-v1")
    assert (row.label, row.seeds, row.middle) == ("ppo", 2, 15.0)
    # Student's t of one degree of freedom, 12.706, by the deviation of 10 and 20 over sqrt(2): 5
    assert (row.low, row.high) == pytest.approx((15 - 63.53, 15 + 63.53))
    assert row.speed == 100.0


def test_what_one_seed_compiled_before_it_began_does_not_shift_its_curve(tmp_path: Path) -> None:
    run(tmp_path / "a", 0, [None, 1, 10], began=50.0)  # no episode has ended in the first report
    run(tmp_path / "b", 1, [2, 20, 30])
    ((group,),) = rondel.compare(tmp_path).tasks.values()
    assert [curve.seconds.tolist() for curve in group.curves] == [[1.0, 2.0], [0.0, 1.0, 2.0]]
    assert group.at(np.array([1.0, 2.0]), "seconds").tolist() == [[1.0, 20.0], [10.0, 30.0]]
    # between two rows, half of each; before a curve's first row that one
    assert group.at(np.array([0.5, 1.5]), "seconds").tolist() == [[1.0, 11.0], [5.5, 25.0]]


def test_large_numbers_are_written_out(tmp_path: Path) -> None:
    run(tmp_path / "a", 0, [-0.5, 12_345.6], every=60_020)
    assert "| ppo | 1 | 12,346 | one seed | 60,020 |" in str(rondel.compare(tmp_path))


def test_the_folder_of_several_seeds_is_all_of_them(tmp_path: Path) -> None:
    for seed in range(3):
        run(tmp_path / "ours" / f"seed-{seed}", seed, [1 + seed])
    run(tmp_path / "other", 0, [7], algorithm="dqn")
    assert [row.seeds for row in rondel.compare(tmp_path / "ours").rows("CartPole-v1")] == [3]
    rows = rondel.compare(tmp_path).rows("CartPole-v1")
    assert [(row.label, row.seeds) for row in rows] == [("dqn", 1), ("ppo", 3)]


def test_a_group_is_named_by_what_it_differs_in(tmp_path: Path) -> None:
    paths = [
        run(tmp_path / "a", 0, [1]),
        run(tmp_path / "b", 0, [2], **options(plan="actor*2 | learner")),
        run(tmp_path / "c", 0, [3], **options(plan="actor*2 | learner", lag=1)),
        run(tmp_path / "d", 0, [4], config={"clip": 0.1, "rollout": 64}),
        run(tmp_path / "e", 0, [5], algorithm="dqn", config={"batch": 64}),
    ]
    (groups,) = rondel.compare(paths).tasks.values()
    assert [group.label for group in groups] == [
        "ppo, all, clip 0.2",
        "ppo, actor*2 | learner, lag 0",
        "ppo, actor*2 | learner, lag 1",
        "ppo, all, clip 0.1",
        "dqn",
    ]


def test_worlds_that_play_the_same_game_are_one_task(tmp_path: Path) -> None:
    run(tmp_path / "a", 0, [1])
    run(tmp_path / "b", 0, [2], env="gymnasium:CartPole-v1")
    run(tmp_path / "c", 0, [2], env="jax:Pendulum-v1")
    tasks = rondel.compare(tmp_path).tasks
    assert {task: [g.label for g in groups] for task, groups in tasks.items()} == {
        "CartPole-v1": ["ppo, jax:CartPole-v1", "ppo, gymnasium:CartPole-v1"],
        "Pendulum-v1": ["ppo"],
    }


@pytest.mark.parametrize(
    ("theirs", "verdict"),
    [
        ([50, 51, 52, 51, 50], "**ppo** is ahead: its interval lies above all others."),
        ([50, 51, 105, 90, 99], "No winner: the intervals overlap."),
        ([1] * 4, "Too few seeds to name a winner: dqn must have 5 or more."),
    ],
)
def test_a_winner_is_named_where_the_intervals_allow_it(
    tmp_path: Path, theirs: list[float], verdict: str
) -> None:
    for seed, value in enumerate([100, 101, 102, 101, 101]):
        run(tmp_path / f"ppo{seed}", seed, [value])
    for seed, value in enumerate(theirs):
        run(tmp_path / f"dqn{seed}", seed, [value], algorithm="dqn")
    compared = rondel.compare(tmp_path)
    assert compared.verdict("CartPole-v1") == verdict
    assert str(compared).endswith(verdict)
    assert "| ppo | 5 | 101 |" in str(compared)


def test_an_interquartile_mean_needs_more_seeds_and_says_so(tmp_path: Path) -> None:
    for seed in range(5):
        run(tmp_path / f"ppo{seed}", seed, [100 + seed])
        run(tmp_path / f"dqn{seed}", seed, [seed], algorithm="dqn")
    compared = rondel.compare(tmp_path, iqm=True)
    assert compared.verdict("CartPole-v1").endswith("ppo and dqn must have 10 or more.")
    assert "return after 100 steps, interquartile mean over seeds\n" in str(compared)
    three = rondel.compare([tmp_path / f"ppo{seed}" for seed in range(3)], iqm=True)
    assert "interquartile mean (the mean of fewer than 4) over seeds" in str(three)


def test_speeds_of_seeds_that_shared_a_machine_are_marked(tmp_path: Path) -> None:
    for seed in range(3):
        run(tmp_path / "many" / f"seed-{seed}", seed, [1 + seed, 2], at_a_time=3)
    run(tmp_path / "one", 0, [7, 7], algorithm="dqn")
    table = str(rondel.compare(tmp_path))
    assert "| 100\\* |" in table
    assert "| dqn | 1 | 7 | one seed | 100 |" in table
    assert "\\* Up to 3 seeds shared the machine: a single run is faster." in table


def test_stars_of_a_plan_are_stars_in_markdown(tmp_path: Path) -> None:
    for seed in range(5):
        run(tmp_path / f"a{seed}", seed, [100 + seed], **options(plan="actor*2 | gradient*2"))
        run(tmp_path / f"b{seed}", seed, [seed])
    table = str(rondel.compare(tmp_path))
    assert "| `ppo, actor*2 \\| gradient*2` | 5 |" in table
    assert "**`ppo, actor*2 | gradient*2`** is ahead" in table


def test_a_picture_of_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(3):
        run(tmp_path / "runs" / f"a{seed}", seed, [None, 1 + seed, 10, 20])
        run(tmp_path / "runs" / f"b{seed}", seed, [5], env="jax:Pendulum-v1")
    out = tmp_path / "all.png"
    main.main(["plot", str(tmp_path / "runs"), "--out", str(out)])
    assert capsys.readouterr().out.strip() == str(out)
    assert out.read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob(".*"))
    main.main(["plot", str(tmp_path / "runs"), "--out", str(out), "--overwrite"])
    main.main(["compare", str(tmp_path / "runs"), "--iqm"])
    assert ", interquartile mean (the mean of fewer" in capsys.readouterr().out


def test_a_picture_replaces_nothing_unasked_and_is_a_png(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run(tmp_path / "a", 0, [1, 2])
    notes = tmp_path / "notes.png"
    notes.write_text("mine")
    with pytest.raises(RondelError, match="already exists"):
        rondel.plot(folder, notes)
    for name in ("x.jpg", "x.svg", "x", "a/config.json"):
        with pytest.raises(RondelError, match=r"must end in \.png"):
            rondel.plot(folder, tmp_path / name)
    assert notes.read_text() == "mine"
    monkeypatch.chdir(tmp_path)
    rondel.plot(folder)
    rondel.plot(folder)  # the name that it chooses itself is its own


def test_a_picture_says_what_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        run(tmp_path / "runs" / f"a{seed}", seed, [1, 2 + seed])
    drawn: list[Any] = []
    monkeypatch.setattr(learning_curve, "save", lambda figure, path: drawn.append(figure))
    for iqm in (False, True):
        rondel.plot(tmp_path / "runs", tmp_path / "x.png", iqm=iqm)
    assert [figure.axes[0].get_ylabel() for figure in drawn] == [
        "return, mean of seeds with 95\N{NO-BREAK SPACE}% interval",
        "return, interquartile mean of seeds with\n95\N{NO-BREAK SPACE}% interval",
    ]


def test_a_picture_is_as_wide_as_its_longest_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "a", 0, [1, 2])  # 200 steps
    run(tmp_path / "b", 0, [1, 2, 3, 4], algorithm="dqn")  # 400
    drawn: list[Any] = []
    monkeypatch.setattr(learning_curve, "save", lambda figure, path: drawn.append(figure))
    rondel.plot(tmp_path, against="steps")
    left, right = drawn[0].axes[0].get_xlim()
    assert left == 0
    assert right >= 400


def replaced(folder: Path) -> None:
    """By a file."""
    folder.rename(folder.parent / "gone")
    folder.write_text("")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda folder: folder.rename(folder.parent / "gone"), "does not exist"),
        (lambda folder: replaced(folder), "is a file. Use the folder of a run"),
        (lambda folder: (folder / "config.json").unlink(), "holds no run"),
        (lambda folder: (folder / "config.json").write_text("[1]"), "does not describe a run"),
        (lambda folder: (folder / "config.json").write_text('{"env": 1}'), "does not describe"),
        (lambda folder: (folder / "metrics.jsonl").write_text(""), "no finished episode yet"),
        (lambda folder: run(folder.parent / "twin", 0, [1]), "same run with the same seed"),
    ],
)
def test_what_is_no_run_gets_a_sentence(tmp_path: Path, spoil: Any, sentence: str) -> None:
    folder = run(tmp_path / "runs" / "a", 0, [1])
    spoil(folder)
    paths = [folder, folder.parent / "twin"] if (folder.parent / "twin").exists() else [folder]
    with pytest.raises(RondelError, match=sentence):
        rondel.compare(paths)


def test_one_run_of_many_that_says_nothing_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in range(2):
        run(tmp_path / f"a{seed}", seed, [1, 2])
    killed = run(tmp_path / "killed", 2, [])  # before its first row
    half = run(tmp_path / "half", 3, [1, 2])
    (half / "config.json").write_text('{"algorithm": "pp')
    (row,) = rondel.compare(tmp_path).rows("CartPole-v1")
    assert row.seeds == 2
    assert len(caplog.messages) == 2
    assert any(said.startswith(f"Left out: {killed} has no fin") for said in caplog.messages)
    assert any("does not describe a run" in said for said in caplog.messages)
    with pytest.raises(RondelError, match="no finished episode yet"):
        rondel.compare([tmp_path / "a0", killed])  # by its own name it was meant


def test_nothing_and_nowhere(tmp_path: Path) -> None:
    with pytest.raises(RondelError, match="Name the folders"):
        rondel.compare([])
    folder = run(tmp_path / "a", 0, [1])
    with pytest.raises(RondelError, match="steps, seconds or both, got 'moon'"):
        rondel.plot(folder, tmp_path / "a.png", against="moon")
    with pytest.raises(RondelError, match="there is no folder"):
        rondel.plot(folder, tmp_path / "nowhere" / "a.png")


def figure_of(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """What `plot` would save, laid out."""
    drawn: list[Any] = []
    monkeypatch.setattr(learning_curve, "save", lambda figure, path: drawn.append(figure))
    rondel.plot(folder, folder / "x.png", **options)
    drawn[0].draw_without_rendering()
    return drawn[0]


def names_in(figure: Any) -> list[str]:
    (legend,) = figure.subfigs[0].legends
    return [text.get_text() for text in legend.get_texts()]


def test_seconds_of_seeds_side_by_side_are_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They tell how seeds were scheduled, not how quick a run is: the table has a star too."""
    for seed in range(2):
        run(tmp_path / f"a{seed}", seed, [1, 2], at_a_time=2)
        run(tmp_path / f"b{seed}", seed, [1, 2], algorithm="dqn")
    figure = figure_of(tmp_path, monkeypatch)
    assert names_in(figure) == ["ppo (2 seeds)\N{NO-BREAK SPACE}*", "dqn (2 seeds)"]
    note = "seeds shared the machine: one alone is faster"
    assert [axes.get_xlabel() for axes in figure.axes] == [
        "steps",
        f"seconds since the first report\n* {note}",
    ]
    steps = figure_of(tmp_path, monkeypatch, against="steps")  # these are nobody's share
    assert names_in(steps) == ["ppo (2 seeds)", "dqn (2 seeds)"]
    assert [axes.get_xlabel() for axes in steps.axes] == ["steps"]


def test_a_group_alone_is_marked_without_a_star(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "a", 0, [1, 2], at_a_time=2)
    _, right = figure_of(tmp_path, monkeypatch).axes
    assert right.get_xlabel().splitlines()[1].startswith("seeds shared the machine")


@pytest.mark.parametrize("against", ["steps", "both"])
def test_names_of_groups_hide_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, against: str
) -> None:
    for copies in range(1, 7):
        plan = f"env*{copies} | policy+memory | gradient*{copies} | update"
        run(tmp_path / f"a{copies}", 0, [1, 2], **options(plan=plan))
    run(tmp_path / "b", 0, [1, 2], **options(plan="a plan " * 50))  # a stranger's
    figure = figure_of(tmp_path, monkeypatch, against=against)
    (legend,) = figure.subfigs[0].legends
    key = legend.get_window_extent()
    assert all(axes.get_tightbbox().y0 > key.y1 for axes in figure.axes)
    assert figure.bbox.x0 <= key.x0 < key.x1 <= figure.bbox.x1


def test_panels_of_a_task_have_one_axis_of_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "a", 0, [1, 100])
    run(tmp_path / "b", 1, [2, 3, 900])
    left, right = figure_of(tmp_path, monkeypatch).axes
    right.set_ylim(-5, 5)
    assert left.get_ylim() == (-5, 5)
    assert right.get_ylabel() == ""


def test_evaluations_are_drawn_beside_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(2):
        folder = run(tmp_path / f"a{seed}", seed, [1, 2, 3, 4])
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        rows[1]["eval_return"], rows[3]["eval_return"] = 10.0 + seed, 20.0 + seed
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run(tmp_path / "b", 0, [1, 2], algorithm="dqn")
    (axes,) = figure_of(tmp_path, monkeypatch, against="steps").axes
    assert axes.get_ylabel().endswith("dashed: evaluations")
    (dashed,) = [line for line in axes.lines if line.get_linestyle() == "--"]
    # both seeds were evaluated after 200 and 400 steps; 10.5 and 20.5 are the means
    assert dashed.get_xydata()[[0, -1]].tolist() == [[200.0, 10.5], [400.0, 20.5]]
    assert "| ppo | 2 | 2 |" in str(rondel.compare(tmp_path))  # the table has training
