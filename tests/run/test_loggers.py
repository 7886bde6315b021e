"""TensorBoard and Weights & Biases: the same numbers as metrics.jsonl, each once, at no risk."""

from __future__ import annotations

import io
import json
import struct
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rondel
from rondel import RondelError
from rondel.cli import main
from rondel.run.display.display import Display, Lines
from rondel.run.storage import loggers, metrics_file
from run.small import PPO

SMALL = {**PPO, "eval_episodes": 0}
ROWS = [{"steps": 10 * n, "seconds": float(n), "loss": n / 8, "return_mean": None} for n in (1, 2)]


def place(folder: Path, rows: Any = ROWS, resumed: bool = True) -> loggers.Place:
    return loggers.Place(folder, {"algorithm": "ppo"}, rows, resumed)


def events(folder: Path) -> list[Any]:
    """All events of a run's folder, oldest file first: length, checksum, event, checksum each."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for path in sorted((folder / "tensorboard").glob("events.out.tfevents.*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            found.append(Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
    return found


def shown(folder: Path) -> list[tuple[int, str, float]]:
    return [
        (event.step, value.tag, value.simple_value)
        for event in events(folder)
        for value in event.summary.value
    ]


def written(folder: Path) -> list[tuple[int, str, Any]]:
    """The same as metrics.jsonl has it; TensorBoard's numbers have 32 bits."""
    return [
        (row["steps"], name, pytest.approx(value, rel=1e-6))
        for row in metrics_file.read(folder / "metrics.jsonl")
        for name, value in row.items()
        if name != "steps" and value is not None
    ]


@pytest.mark.long
def test_tensorboard_has_what_metrics_have_after_a_resume(tmp_path: Path) -> None:
    rondel.train("ppo", "CartPole-v1", steps=500, out=tmp_path, log="tensorboard", **SMALL)
    rondel.resume(tmp_path, steps=700, eval_episodes=0)  # of this stretch it was told nothing
    rondel.resume(tmp_path, steps=900, eval_episodes=0, log=["tensorboard"])
    assert shown(tmp_path) == written(tmp_path)
    steps = [step for step, tag, _ in shown(tmp_path) if tag == "entropy"]
    assert steps == sorted(set(steps))
    assert steps[-1] >= 900


def test_an_event_file_that_a_kill_cut_in_half_is_made_whole(tmp_path: Path) -> None:
    board = loggers.TensorBoard(place(tmp_path, rows=[]))
    for row in [*ROWS, {"steps": 30, "loss": 3.0}]:  # the last one is beyond the checkpoint
        board.write(row)
    board.close(failed=True)
    (path,) = (tmp_path / "tensorboard").iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    again = loggers.TensorBoard(place(tmp_path))
    again.write({"steps": 25, "loss": 2.5})
    again.close(failed=False)
    losses = [(step, value) for step, tag, value in shown(tmp_path) if tag == "loss"]
    assert losses == [(10, 0.125), (20, 0.25), (25, 2.5)]
    version, start, *_ = events(tmp_path)
    assert version.file_version == "brain.Event:2"
    assert start.session_log.status == start.session_log.START  # forget what you have read
    first, second, _ = (event.wall_time for event in events(tmp_path)[2:])
    assert second - first == pytest.approx(1.0, abs=1e-3)  # seconds of the run, not of the writing


FAKE = """
calls = []
names = []
class Settings:
    def __init__(self, **fields): pass
class Run:
    def log(self, row, step):
        if len(calls) == FAILS_AT: raise ConnectionError("no way")
        calls.append((step, row))
    def finish(self, exit_code): calls.append(("finish", exit_code))
def init(**fields):
    if FAILS_AT == "init": raise PermissionError("who are you?")
    calls.append(("init", fields["id"], fields["resume"], fields["project"]))
    names.append((fields["name"], fields["reinit"]))
    return Run()
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module wandb that notes its calls; it can be told where to fail."""
    home = tmp_path / "modules"
    home.mkdir()
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    monkeypatch.syspath_prepend(home)

    def fake(fails_at: Any = None) -> Any:
        (home / "wandb.py").write_text(f"FAILS_AT = {fails_at!r}\n{FAKE}")
        import wandb

        return wandb

    yield fake
    sys.modules.pop("wandb", None)


def test_wandb_gets_each_row_once_under_one_id(tmp_path: Path, fake: Any) -> None:
    calls = fake().calls
    first = loggers.WeightsAndBiases(place(tmp_path, rows=[], resumed=False))
    for row in [*ROWS, {"steps": 30, "loss": 3.0}]:
        first.write(row)
    sent = [call for call in calls if isinstance(call[0], int)]
    assert sent[0] == (10, {"seconds": 1.0, "loss": 0.125})
    again = loggers.WeightsAndBiases(place(tmp_path, rows=ROWS))  # 30 was after the checkpoint
    for steps in (30, 40):
        again.write({"steps": steps, "loss": 4.0})
    again.close(failed=False)
    assert [call[0] for call in calls] == ["init", 10, 20, 30, "init", 40, "finish"]
    one, two = (call for call in calls if call[0] == "init")
    assert one == two == ("init", one[1], "allow", "rondel")
    assert calls[-1] == ("finish", 0)


def test_wandb_is_told_what_was_learned_while_it_was_not_there(tmp_path: Path, fake: Any) -> None:
    calls = fake().calls
    loggers.WeightsAndBiases(place(tmp_path, rows=ROWS))
    assert [call[0] for call in calls] == ["init", 10, 20]


class Heard(Display):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


def test_a_wandb_that_fails_is_said_once_and_tensorboard_has_what_metrics_have(
    tmp_path: Path, fake: Any
) -> None:
    module, heard = fake(fails_at=2), Heard()  # after it was started and got one row
    log, folder = ["wandb", "tensorboard"], tmp_path / "run"
    run = rondel.train("ppo", "CartPole-v1", steps=500, out=folder, log=log, display=heard, **SMALL)
    (note,) = (said for said in heard.notes if not said.startswith("Compil"))
    one, two, *_, last = (row["steps"] for row in metrics_file.read(folder / "metrics.jsonl"))
    assert note == (
        f"Output to wandb failed at step {two} (ConnectionError: no way). The run continues "
        "without it."
    )
    assert run.notes == [note]
    assert [call[0] for call in module.calls] == ["init", one, "finish"]
    assert last >= 500
    assert shown(folder) == written(folder)
    assert {"return_mean", "loss/policy", "seconds"} <= {tag for _, tag, _ in shown(folder)}


@pytest.mark.long
@pytest.mark.parametrize("on", ["inline", "threads"])
def test_each_of_several_seeds_has_its_own(tmp_path: Path, fake: Any, on: str) -> None:
    wandb, out, stream = fake(fails_at=2), tmp_path / "out", io.StringIO()
    asked = SMALL | {"log": ["tensorboard", "wandb"], "display": Lines(stream), "on": on}
    runs = rondel.train("ppo", "CartPole-v1", steps=500, seeds=2, out=out, **asked)
    assert sorted(wandb.names) == [("out seed-0", "create_new"), ("out seed-1", "create_new")]
    assert len({call[1] for call in wandb.calls if call[0] == "init"}) == 2
    for run in runs:
        assert shown(run.path) == written(run.path)
    failed = [(run.notes, seed) for seed, run in enumerate(runs) if run.notes]
    assert failed
    said = " ".join(stream.getvalue().split())  # lines are of 80 columns
    for (note,), seed in failed:
        assert f"seed {seed}: {note}" in said


def test_a_wandb_that_does_not_start_is_a_sentence(tmp_path: Path, fake: Any) -> None:
    fake(fails_at="init")
    with pytest.raises(RondelError, match=r"who are you.*wandb login.*WANDB_MODE=offline"):
        rondel.train("ppo", "CartPole-v1", steps=500, out=tmp_path / "run", log="wandb", **SMALL)


@pytest.mark.long
def test_wandb_itself_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for rows, more in ([], 20), (ROWS, 30):
        run = loggers.WeightsAndBiases(place(tmp_path, rows))
        for steps in range(10, more + 10, 10):
            run.write({"steps": steps, "loss": steps / 8})
        run.close(failed=False)
        # within one second the second run would have the folder of the first
        (tmp_path / "wandb").rename(tmp_path / f"until-{more}")
    sent: list[tuple[Any, Any]] = []
    deadline = time.monotonic() + 20
    while len(sent) < 3 and time.monotonic() < deadline:  # wandb writes from a program of its own
        paths = sorted(tmp_path.glob("until-*/offline-run-*/*.wandb"))
        rows = [row for path in paths for row in histories(path)]
        sent = [(json.loads(row["_step"]), json.loads(row["loss"])) for row in rows]
    assert sent == [(10, 1.25), (20, 2.5), (30, 3.75)]


def histories(path: Path) -> list[dict[str, str]]:
    """The rows in a file of wandb's: 7 bytes, then checksum, length, kind (1: whole) and record."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, found = path.read_bytes()[7:], []
    while len(data) > 7:
        _, length, kind = struct.unpack("<IHB", data[:7])
        if len(data) < 7 + length:
            break
        assert kind == 1
        items = Record.FromString(data[7 : 7 + length]).history.item
        found += [{i.key or "/".join(i.nested_key): i.value_json for i in items}] if items else []
        data = data[7 + length :]
    return found


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_a_missing_package_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RondelError, match=rf'{package}\. Use pip install "rondel\[{name}\]"'):
        rondel.train("ppo", "CartPole-v1", out=tmp_path / "run", log=name)
    assert not (tmp_path / "run").exists()


def test_what_is_no_output_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RondelError, match="log must be tensorboard or wandb, or both, got 'moon'"):
        rondel.train("ppo", "CartPole-v1", out=tmp_path / "run", log=["tensorboard", "moon"])


def test_both_are_two_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def train(*_: Any, **fields: Any) -> Any:
        asked.append(fields["log"])
        raise RondelError("enough")

    monkeypatch.setattr(rondel, "train", train)
    for flags in [[], ["--log", "wandb", "--log", "tensorboard"]]:
        with pytest.raises(SystemExit):
            main.main(["train", "ppo", "CartPole-v1", *flags])
    assert asked == [(), ("wandb", "tensorboard")]


def test_a_note_of_nonsense_is_no_note(tmp_path: Path, fake: Any) -> None:
    calls = fake().calls
    for text in ("", "[1]", '{"id": "../x", "steps": 3}', '{"id": "abc"}'):
        (tmp_path / "wandb.json").write_text(text)
        loggers.WeightsAndBiases(place(tmp_path))
    assert [call[0] for call in calls] == ["init", 10, 20] * 4
    assert json.loads((tmp_path / "wandb.json").read_text())["steps"] == 20
