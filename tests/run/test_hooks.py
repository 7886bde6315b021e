"""Hooks: what happens after rounds, at checkpoints and at the end, and at which state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rondel
from rondel import RondelError
from rondel.run.display.display import Display
from rondel.run.training import hooks, train_loop
from run.small import PPO

SMALL: dict[str, Any] = {"eval_episodes": 0, **PPO}


class Noted(rondel.Hook):
    """It notes each event with how far the run is."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def after_round(self, run: Any, record: Any) -> None:
        self.seen.append(("round", record.round, run.ring.round))

    def at_checkpoint(self, run: Any) -> None:
        saved = json.loads((run.checkpoint / "meta.json").read_text())["meta"]
        self.seen.append(("checkpoint", saved["round"], run.ring.round))

    def at_end(self, run: Any) -> None:
        self.seen.append(("end", run.result["steps"], run.steps))


def test_a_hook_hears_of_rounds_checkpoints_and_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_loop, "CHECKPOINT_SECONDS", -1.0)
    run = rondel.train(
        "ppo", "CartPole-v1", steps=300, out=tmp_path, hooks=(own := Noted()), **SMALL
    )
    rounds = [
        event
        for i in range(run.ring.round)
        for event in (("round", i, i + 1), ("checkpoint", i + 1, i + 1))
    ]
    assert own.seen == [*rounds, ("end", run.steps, run.steps)]


class Paused(rondel.Hook):
    """It notes the steps at which it saw the run at its record, and those at which it was ahead."""

    pause_every = 1_000

    def __init__(self) -> None:
        self.there: list[int] = []
        self.ahead: list[int] = []

    def after_round(self, run: Any, record: Any) -> None:
        (self.there if run.ring.round == record.round + 1 else self.ahead).append(record.steps)


@pytest.mark.parametrize("seeds", [None, 2])
def test_a_run_pauses_only_where_a_hook_asks_for_it(seeds: int | None, tmp_path: Path) -> None:
    one = Paused()
    rondel.train("ppo", "CartPole-v1", steps=6_500, seeds=seeds, out=tmp_path, hooks=[one], **SMALL)
    every = sorted(one.there + one.ahead)
    firsts = [next(steps for steps in every if steps >= 1_000 * n) for n in range(1, 7)]
    assert set(firsts) <= set(one.there)
    assert one.ahead  # between them many rounds are one call


def test_an_exception_of_a_hook_is_the_users_own(tmp_path: Path) -> None:
    def fail(run: Any, record: Any) -> None:
        raise ZeroDivisionError("the spring broke")

    with pytest.raises(ZeroDivisionError, match="the spring broke") as error:
        rondel.train("ppo", "CartPole-v1", steps=300, out=tmp_path, hooks=fail, **SMALL)
    assert error.traceback[-1].name == "fail"
    assert json.loads((tmp_path / "live.json").read_text())["state"] == "failed"


@pytest.mark.parametrize("given", [3, [print, "log"], rondel.Hook])
def test_what_is_no_hook_gets_a_sentence(given: Any, tmp_path: Path) -> None:
    with pytest.raises(RondelError, match=r"hooks must be functions of \(run, record\) or rondel"):
        rondel.train("ppo", "CartPole-v1", out=tmp_path / "run", hooks=given)
    assert not (tmp_path / "run").exists()


# live.json


def test_live_json_says_how_far_a_run_is_and_that_it_is_finished(tmp_path: Path) -> None:
    """Also of a run that nobody watches, and of seeds that share a program."""
    live: list[Any] = []

    def look(run: Any, record: Any) -> None:
        live.append(json.loads((run.path / "live.json").read_text()))

    runs = rondel.train(
        "ppo",
        "CartPole-v1",
        steps=600,
        seeds=2,
        until_return=400.0,
        out=tmp_path,
        hooks=look,
        **SMALL,
    )
    assert {one["state"] for one in live} == {"running"}
    for run in runs:
        last = json.loads((run.path / "live.json").read_text())
        assert last.keys() == {
            *("state", "updated", "algorithm", "env", "seed", "total_steps", "until_return"),
            *("round", "steps", "episodes", "return_mean", "length_mean", "metrics"),
            *("seconds", "seconds_left", "steps_per_second", "utilisation"),
        }
        assert (last["state"], last["seed"]) == ("finished", run.setup.task.seed)
        assert (last["steps"], last["total_steps"]) == (run.steps, 600)
        assert (last["until_return"], last["round"]) == (400.0, run.ring.round - 1)
        assert last["return_mean"] == run.return_mean
        assert {"loss/policy", "entropy"} <= last["metrics"].keys()


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return -self.now  # a wall clock may be set back


def test_live_json_is_written_once_a_second_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, record, clock = hooks.LiveFile(tmp_path, 0), record_of(tmp_path), Clock()
    monkeypatch.setattr(hooks, "time", clock)
    written: list[float] = []
    monkeypatch.setattr(hooks, "replace_file", lambda *_: written.append(clock.now))
    for tenth in range(35):
        clock.now = 100 + tenth / 10
        file.update(record)
    assert written == [100.0, 101.0, 102.0, 103.0]
    file.close(None)
    assert len(written) == 5


def record_of(folder: Path) -> Any:
    """The first record of a run."""
    kept: list[Any] = []
    rondel.train(
        "ppo",
        "CartPole-v1",
        steps=1,
        out=folder / "run",
        hooks=lambda _, it: kept.append(it),
        **SMALL,
    )
    return kept[0]


@pytest.mark.parametrize(
    ("error", "state"), [(None, "stopped"), (KeyboardInterrupt, "stopped"), (OSError, "failed")]
)
def test_live_json_tells_how_a_run_ended(error: Any, state: str, tmp_path: Path) -> None:
    file = hooks.LiveFile(tmp_path, 7)
    file.update(record_of(tmp_path)._replace(return_mean=float("nan")))
    file.close(error)
    last = json.loads((tmp_path / "live.json").read_text())
    assert (last["state"], last["seed"], last["return_mean"]) == (state, 7, None)


def test_a_full_disk_is_no_end_for_live_json(tmp_path: Path) -> None:
    file = hooks.LiveFile(tmp_path / "gone", 0)
    file.update(record_of(tmp_path))
    file.close(None)


class Loads(Display):
    def __init__(self) -> None:
        self.loads: list[Any] = []

    def update(self, record: Any) -> None:
        self.loads += [record.utilisation] if record.utilisation else []


def test_live_json_has_the_pieces_that_a_panel_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rondel.run.profiling import live

    monkeypatch.setattr(live, "_FIRST", 0.0)
    monkeypatch.setattr(live, "_SECONDS", 0.0)
    plan = {"plan": "actor*2 | learner", "on": "threads", "block": 4}
    rondel.train(
        "ppo", "CartPole-v1", steps=3_000, out=tmp_path, display=(seen := Loads()), **SMALL, **plan
    )
    used = json.loads((tmp_path / "live.json").read_text())["utilisation"]
    assert used == json.loads(json.dumps(seen.loads[-1].as_json()))
    assert [piece["name"] for piece in used["pieces"]] == ["actor", "learner"]
    assert used["pieces"][0]["copies"] == 2
    assert 0.0 < used["pieces"][1]["busy"] <= 1.0
    assert {"bound", "part", "piece", "text", "lag", "free"} <= used.keys()
