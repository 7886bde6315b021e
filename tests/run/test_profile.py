"""Why is it slow? The answer is known, and the profile has to give it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

import rondel
from marks import few_of
from rondel.algorithms import a2c
from rondel.cli import main
from rondel.envs.world import is_installed
from rondel.errors import RondelError
from rondel.execution.telemetry.timing import SIMULATOR, STARTING
from rondel.plan.parser import parse
from rondel.run.display.display import Display
from rondel.run.display.round_record import RoundRecord
from rondel.run.display.utilisation import Utilisation
from rondel.run.profiling import live
from rondel.run.profiling.diagnosis import diagnose
from rondel.run.profiling.stage_timing import wider
from rondel.run.setup.shape_model import ShapeModel
from rondel.types import Algorithm, EnvSpec

SMALL = {"lanes": 8, "rollout": 16, "epochs": 1, "minibatches": 1, "hidden": (8,), "tuned": False}


class Sleepy(gymnasium.Env[Any, Any]):
    """It sleeps a millisecond in every step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._left = 50
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        time.sleep(0.001)
        self._left -= 1
        return np.zeros(3, np.float32), 1.0, False, self._left == 0, {}


class Lame(Sleepy):
    """One of all that were made sleeps: the last of eight, after one that is looked at."""

    made = 0

    def __init__(self) -> None:
        Lame.made += 1
        self._nap = 0.01 if Lame.made == 9 else 0.0

    def step(self, action: Any) -> Any:
        time.sleep(self._nap)
        self._left -= 1
        return np.zeros(3, np.float32), 1.0, False, self._left == 0, {}


class Big(gymnasium.Env[Any, Any]):
    """It shows a megabyte, and does nothing."""

    observation_space = gymnasium.spaces.Box(0, 255, (1024, 1024), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    seen = np.zeros((1024, 1024), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._left = 50
        return self.seen, {}

    def step(self, action: Any) -> Any:
        self._left -= 1
        return self.seen, 1.0, False, self._left == 0, {}


def corner(space: Any) -> Any:
    """A network that looks at a corner of it only."""
    return lambda key: jnp.ones((16, 4)), lambda params, obs: obs[:, 0, :16] / 255.0 @ params


class Large(Big):
    """It shows less than that, but still much."""

    observation_space = gymnasium.spaces.Box(0, 255, (256, 256), np.uint8)
    seen = np.zeros((256, 256), np.uint8)


def table(space: Any) -> Any:
    """A network with a large table, of which it reads a corner; all of it has to be updated."""
    return lambda key: jnp.ones((4, 1_500_000)), lambda params, obs: obs @ params[:, :4]


def talkative(config: a2c.Config, spec: EnvSpec) -> Algorithm:
    """A2C with a metric too many, each of which has to be taken out of the program by Python."""
    inner = a2c.make(config, spec)

    def gradient(*args: Any) -> Any:
        grads, weight, feedback, metrics = inner.gradient(*args)
        more = {f"more/{i}": weight for i in range(2_000)}
        return grads, weight, feedback, metrics | more

    return inner._replace(gradient=gradient)


class Quick(Sleepy):
    """It does nothing."""

    def step(self, action: Any) -> Any:
        self._left -= 1
        return np.zeros(3, np.float32), 1.0, False, self._left == 0, {}


def pause(run: Any, report: Any) -> None:
    """What a user does between rounds."""
    time.sleep(0.05)


def glance(run: Any, report: Any) -> None:
    """What takes a user next to no time."""


WIDE = {"lanes": 64, "rollout": 64, "epochs": 2, "hidden": (256, 256)}
SLOW = {"on": "threads", "free": True, "lag": 1, "epochs": 20, "hidden": (256, 256)}
REPLAYED = {"lanes": 8, "rollout": 2, "batch": 16, "updates": 8, "capacity": 64, "warmup": 32}
REPLAYED |= {"hidden": (8,), "tuned": False, "on": "processes", "restarts": 0}
SELDOM = {"rollout": 64, "updates": 1, "capacity": 2048, "hidden": (1024,) * 3, "on": "inline"}
APART = "actor | memory | gradient | update"
DRAWN = {"batch": 256, "capacity": 2048, "warmup": 256, "plan": APART, "on": "inline"}
QUICK = ["env", "room", "uneven", "callback", "memory"]
# name: (bound, algorithm, environment, steps, fields): what each is built to be bound by
KNOWN: dict[str, tuple[str, Any, Any, int, dict[str, Any]]] = {
    "env": ("env", "ppo", Sleepy, 1_000, {}),
    "room": ("learner", "impala", "CartPole-v1", 3_000, {"plan": "actor*2 | learner", **SLOW}),
    "transport": (
        *("transport", "ppo", "CartPole-v1", 2_000),
        {"plan": "actor*2 | learner", "on": "processes", "rollout": 1, "block": 4},
    ),
    "big": (
        *("transport", "dqn", Big, 400),
        {"plan": "actor | memory | gradient+update", "network": corner, **REPLAYED, "on": "ray"},
    ),
    "uneven": (
        *("uneven copies", "ppo", Lame, 1_500),
        {"plan": "actor*4 | learner", "on": "threads", "block": 2},
    ),
    "callback": ("callback", "ppo", "CartPole-v1", 1_000, {"hooks": pause}),
    "callback, cut": (
        *("callback", "ppo", "CartPole-v1", 1_000),
        {"plan": "actor*2 | learner", "on": "threads", "block": 4, "hooks": pause},
    ),
    # a wide policy acts in a cheap environment, and learns from little of it
    "policy": ("policy", "dqn", Quick, 4_000, REPLAYED | SELDOM),
    "gradient": ("gradient", "ppo", "CartPole-v1", 20_000, WIDE),
    # large observations are drawn, of which a small network sees little
    "memory": ("memory", "dqn", Large, 500, REPLAYED | DRAWN | {"network": corner}),
    "update": (
        *("update", "ppo", "CartPole-v1", 1_000),
        {"network": table, "plan": APART, "on": "inline"},
    ),
    "python": ("python", talkative, Quick, 400, {"config": a2c.Config(rollout=1, hidden=(8,))}),
    "dispatch": ("dispatch", "ppo", "CartPole-v1", 20_000, {"lanes": 1, "rollout": 128}),
}


@pytest.mark.parametrize("name", few_of(KNOWN, QUICK))
def test_a_workload_is_named_after_what_bounds_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound, algorithm, env, steps, fields = KNOWN[name]
    settings = SMALL | fields if algorithm in ("ppo", "impala") else fields
    settings |= {"lanes": 16, "block": 8} if name == "room" else {}
    settings |= {"eval_episodes": 0, "display": (heard := Heard())}
    if name in ("env", "room"):  # to look after every round costs more than a short round does
        monkeypatch.setattr(live, "_FIRST", 0.0)
        monkeypatch.setattr(live, "_SECONDS", 0.0)
    monkeypatch.setattr(Lame, "made", 0)
    rondel.train(algorithm, env, steps=steps, out=tmp_path, **settings)
    verdict = diagnose(rondel.profile(tmp_path, stages=name in ("gradient", "dispatch")))
    assert verdict.bound == bound, verdict.text
    if name in ("env", "room"):  # and while it runs
        assert heard.loads[-1].bound == bound, heard.loads[-1]


@pytest.mark.parametrize("on", few_of(["threads", "inline", "processes"], ["threads"]))
def test_all_shares_are_of_the_time_since_all_was_compiled(on: str) -> None:
    plan = "actor*2 | learner"
    with rondel.start("ppo", "CartPole-v1", steps=4_000, plan=plan, on=on, block=4, **SMALL) as run:
        for _ in run:
            pass
        seen = rondel.profile(run)
    # a fresh process compiles for seconds, the rounds after it take a few milliseconds each
    assert seen.rounds == run.ring.round - 2
    everyone = (*seen.pieces, *([seen.driver] if seen.driver else []))
    seconds = [sum(s.seconds for s in own.shares) for piece in everyone for own in piece.each]
    assert len(seconds) == (1 if on == "inline" else 4)
    assert max(seconds) < 1.5 * min(seconds)  # of one stretch of time, so that they can be added
    for piece in everyone:
        for own in piece.each:
            assert sum(share.part for share in own.shares) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("algorithm", "env"), [("dqn", "CartPole-v1"), ("sac", "Pendulum-v1"), ("ppo", "CartPole-v1")]
)
def test_what_is_wider_has_more_rows_in_every_stage(algorithm: str, env: str) -> None:
    with rondel.start(algorithm, env, steps=1, tuned=False) as run:
        task = run.setup.task
        wide = wider(run.setup).task
    assert wide.lanes == 4 * task.lanes
    whole = parse("all")
    assert ShapeModel(wide, whole, None).rows == 4 * ShapeModel(task, whole, None).rows
    assert wide.algorithm.memory.draws == task.algorithm.memory.draws


@pytest.mark.parametrize(("fields", "block"), [({"lanes": 1}, 4), ({"lanes": 4, "block": 2}, 2)])
def test_what_is_wider_acts_in_the_blocks_that_more_lanes_have(
    fields: dict[str, int], block: int
) -> None:
    with rondel.start("ppo", "CartPole-v1", steps=1, tuned=False, **fields) as run:
        assert wider(run.setup).task.block == block


@pytest.mark.long
def test_what_other_processes_do_is_known_while_they_do_it(tmp_path: Path) -> None:
    for plan in ("actor*2 | learner", "env*2 | policy+learner"):
        heard, out = Heard(), tmp_path / plan.split("*")[0]
        fields = SMALL | {"plan": plan, "on": "processes", "block": 4, "eval_episodes": 0}
        rondel.train("ppo", Sleepy, steps=12_000, out=out, display=heard, **fields)
        seen = heard.loads[-1]
        assert [piece.copies for piece in seen.pieces] == [2, 1]
        assert (seen.bound, seen.piece) == ("env", seen.pieces[0].name), seen
        assert all(piece.memory > 2**20 for piece in seen.pieces)


class Heard(Display):
    """It remembers the loads that it was to show."""

    def __init__(self) -> None:
        self.loads: list[Utilisation] = []

    def update(self, record: RoundRecord) -> None:
        self.loads += [record.utilisation] if record.utilisation else []


class Reluctant(Quick):
    """It takes its time to begin."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        time.sleep(0.02)
        return super().reset(seed=seed)


@pytest.mark.parametrize(("algorithm", "kind"), [("ppo", STARTING), ("es", SIMULATOR)])
def test_to_begin_episodes_is_not_what_python_does(algorithm: str, kind: str) -> None:
    small = {"lanes": 8, "rollout": 16, "hidden": (8,), "tuned": False}
    # es begins anew in every round
    with rondel.start(algorithm, Reluctant, steps=300, **small) as run:
        for _ in run:
            pass
        told = {(s.stage, s.kind): s.seconds for s in run.ring.meter.report().spent}
    assert told["env", kind] >= 8 * 0.02


class Slow(Display):
    """It takes its time to show a round."""

    def update(self, record: RoundRecord) -> None:
        time.sleep(0.03)


@pytest.mark.parametrize("bound", ["callback", "output"])
def test_seeds_in_one_program_tell_hooks_from_output(bound: str, tmp_path: Path) -> None:
    called = pause if bound == "callback" else glance
    shown = {"hooks": called, "display": Slow() if bound == "output" else Display()}
    rondel.train(
        "ppo", "CartPole-v1", steps=500, seeds=2, out=tmp_path, eval_episodes=0, **SMALL, **shown
    )
    verdict = diagnose(rondel.profile(tmp_path / "seed-1", stages=False))
    assert verdict.bound == bound, verdict.text


@pytest.mark.long
@pytest.mark.skipif(not is_installed("envpool"), reason="EnvPool is not here")
def test_a_pool_inside_of_a_program_has_its_stages_timed(tmp_path: Path) -> None:
    env = "envpool-xla:CartPole-v1"
    rondel.train("ppo", env, steps=2_000, out=tmp_path, eval_episodes=0, **SMALL)
    found = rondel.profile(tmp_path)
    assert found.stages is not None
    assert list(found.stages) == ["env", "policy", "memory", "gradient", "update"]
    assert found.stages["env"] > 0


@pytest.mark.parametrize(("steps", "shown"), [("100", False), ("600", True)])
def test_shares_of_a_single_round_are_not_shown(
    steps: str, shown: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--lanes", "8", "--rollout", "16", "--epochs", "1", "--hidden", "8"]
    main.main(
        ["train", "ppo", "probe:both", "--steps", steps, "--out", str(tmp_path / "a"), *small]
    )
    said = capsys.readouterr().err
    assert ("piece, stage" in said, "Too short to name" in said) == (shown, not shown)


def test_a_run_says_it_at_its_end_and_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    plan = ["--plan", "actor*2 | learner", "--on", "threads", "--block", "4"]
    small = ["--lanes", "8", "--rollout", "16", "--epochs", "1", "--hidden", "8"]
    main.main(["train", "ppo", "probe:both", "--steps", "600", "--out", str(folder), *small, *plan])
    assert f"Advice: rondel profile {folder}" in " ".join(capsys.readouterr().err.split())
    main.main(["profile", str(folder), "--no-stages"])
    table, _, text = (said := capsys.readouterr().out).partition("\n\n")
    assert text.startswith("Bottleneck: ")
    assert all(len(line) <= 80 for line in said.splitlines() if str(tmp_path) not in line)
    assert "actor, 2 copies\n" in table
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    rows = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert rows == {"actor 1 of 2", "actor 2 of 2", "learner", "driver"}
    spans = [event for event in events if event["ph"] == "X"]
    assert {event["tid"] for event in spans} == {event["tid"] for event in events}
    since = time.time() - 600
    assert all(event["ts"] / 1e6 > since and event["dur"] >= 0 for event in spans)


def test_what_is_ones_own_is_brought_again_to_time_stages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    folder, own = tmp_path / "run", "run.test_profile:Quick"
    small = ["--lanes", "8", "--rollout", "16", "--epochs", "20", "--hidden", "256", "256"]
    small += ["--eval-episodes", "0", "--steps", "2000", "--no-tuned"]
    main.main(["train", "ppo", own, "--out", str(folder), *small])
    main.main(["profile", str(folder)])
    assert "Stages were not timed" in caplog.text
    assert "--env on the command line" in caplog.text
    assert "\nBottleneck: learner" in capsys.readouterr().out
    with pytest.raises(RondelError, match=r"run\.test_profile has no 'Quack'"):
        rondel.profile(folder, env="run.test_profile:Quack")
    main.main(["profile", str(folder), "--env", own])
    assert "\nstages timed one by one: env " in capsys.readouterr().out


def own_a2c(config: a2c.Config, spec: EnvSpec) -> Algorithm:
    return a2c.make(config, spec)


def linear(space: Any) -> Any:
    """A network of one layer."""
    return lambda key: jnp.ones((4, 4)), lambda params, obs: obs @ params


@pytest.mark.parametrize("part", ["algorithm", "network"])
def test_an_algorithm_or_a_network_of_ones_own_is_brought_again(part: str, tmp_path: Path) -> None:
    config = a2c.Config(rollout=4, hidden=(8,))
    mine = {"algorithm": own_a2c, "config": config} if part == "algorithm" else {"network": linear}
    asked = {"algorithm": "a2c", "lanes": 8, "rollout": 4, "eval_episodes": 0, "tuned": False}
    rondel.train(env="CartPole-v1", steps=20_000, out=tmp_path, **asked | mine)
    assert rondel.profile(tmp_path).stages is None
    found = rondel.profile(tmp_path, **mine)
    assert found.stages is not None
    assert found.more_rows is not None


def test_what_is_no_run_or_has_no_profile_yet_gets_a_sentence(tmp_path: Path) -> None:
    def refused(path: Path, sentence: str) -> None:
        with pytest.raises(RondelError, match=sentence):
            rondel.profile(path)

    refused(tmp_path / "nowhere", "there is no such folder")
    refused(tmp_path, "holds no checkpoint")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.json").write_text("{}")
    refused(
        tmp_path / "new", "profile.json can't be read: .* A run writes it at its end and with each"
    )
    refused(tmp_path / "new" / "config.json", "is a file")
    (tmp_path / "five" / "a" / "seed-0" / "checkpoints").mkdir(parents=True)
    refused(tmp_path / "five", "is a folder of runs. Use one of them, such as .*five/a/seed-0")
    (tmp_path / "five" / "a" / "seed-1" / "checkpoints").mkdir(parents=True)
    refused(tmp_path / "five", "is a folder of runs. Use one of them, such as .*five/a/seed-0")
    refused(tmp_path / "five" / "a", "is a folder of runs. Use one of them")
    with pytest.raises(RondelError, match=r"is a folder of runs\. Use one of them, such as"):
        rondel.evaluate(tmp_path / "five")


def test_a_checkpoint_is_as_good_as_the_folder_of_its_run(tmp_path: Path) -> None:
    rondel.train("ppo", "probe:one", steps=600, out=tmp_path, eval_episodes=0, **SMALL)
    newest = tmp_path / "checkpoints" / "000001"
    assert newest.is_dir()
    assert rondel.profile(newest, stages=False) == rondel.profile(tmp_path, stages=False)
