"""Why is it slow? The answer is known, and the profile has to give it."""

from __future__ import annotations

import dataclasses
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
from rondel.errors import RondelError
from rondel.run import cli, diagnosis, profile, window
from rondel.run.diagnosis import diagnose
from rondel.run.display import Progress, Silent
from rondel.run.load import Load
from rondel.run.profile import Piece, Profile, Share

SMALL = {"lanes": 8, "rollout": 16, "epochs": 1, "minibatches": 1, "hidden": (8,), "tuned": False}


def made_up(*pieces: Piece, **other: Any) -> Profile:
    about = {"plan": "all", "on": "processes", "env": "gymnasium:Humanoid-v5", "lanes": 8}
    about |= {"lag": 0, "free": False, "most_lag": 0, "seconds": 10.0, "starting": 3.0}
    return Profile(**about | {"pieces": pieces} | other)


def piece(name: str, copies: int = 1, **parts: float) -> Piece:
    """Shares by stage and kind: `env_simulator=0.7`."""
    split = ((key.partition("_"), part) for key, part in parts.items())
    shares = [Share(key[0], key[2], part, 10 * part, 100, 0) for key, part in split]
    return Piece(name, copies, tuple(shares))


IN_ENV = piece("all", env_simulator=0.9, policy_xla=0.1)
LEARNER = piece("learner", memory_data=0.8, learner_xla=0.2)
ROOMY = piece("actor", 4, actor_room=0.7, actor_xla=0.3)
FUSED = piece("all", all_xla=0.98, driver_python=0.02)
APART = {"env": 0.05, "policy": 0.1, "memory": 0.05, "gradient": 0.6, "update": 0.2}


@pytest.mark.parametrize(
    ("seen", "bound", "part", "says"),
    [
        # one process: what takes most
        (made_up(piece("all", env_simulator=0.71, policy_xla=0.29)), "env", 0.71, "envpool:Human"),
        (made_up(IN_ENV, env="gymnasium:CartPole-v1"), "env", 0.9, "jax:CartPole-v1 is the same"),
        (made_up(IN_ENV, env="gymnasium:ALE/Pong-v5"), "env", 0.9, "grey pixels: envpool:Pong-v5"),
        (made_up(piece("all", env_simulator=0.2, learner_xla=0.8)), "learner", 0.8, "rondel prof"),
        (made_up(piece("all", policy_python=0.6, env_simulator=0.4)), "python", 0.6, "More lanes"),
        # several: what takes most in the piece that waits least
        (
            made_up(
                piece("actor", 4, env_simulator=0.7, policy_xla=0.1, policy_weights=0.2), LEARNER
            ),
            "env",
            0.7,
            "more copies",
        ),
        (
            made_up(ROOMY, piece("learner", learner_xla=0.9, memory_data=0.1), free=True, lag=1),
            "learner",
            0.9,
            "wait 70% of their time for room",
        ),
        # without lag pieces take turns, so what each hands over adds up, with what is on
        # its way meanwhile: 0.2 + 0.15 + (1 - 0.5 - 0.4)
        (
            made_up(
                piece("actor", actor_xla=0.3, actor_transport=0.2, actor_weights=0.5),
                piece("learner", learner_xla=0.25, learner_transport=0.15, memory_data=0.6),
            ),
            "transport",
            0.45,
            "fewer cuts",
        ),
        # without lag all that nobody is busy with is on its way: 1 - 0.3 - 0.2
        (
            made_up(piece("actor", actor_weights=0.7, actor_xla=0.3), LEARNER),
            "transport",
            0.5,
            "fewer cuts",
        ),
        (
            made_up(
                piece("actor", actor_weights=0.5, actor_xla=0.5),
                piece("learner", memory_data=0.55, learner_xla=0.45),
                most_lag=None,
            ),
            "actor",
            0.5,
            "--lag 1",
        ),
        # one program: what its stages take apart
        (made_up(FUSED), "all", 0.98, "measures its stages apart"),
        (made_up(FUSED, apart=APART), "gradient", 0.98 * 0.6, "gradient*2"),
        (made_up(FUSED, apart=APART, more_lanes=1.2, one_step=1e-4), "dispatch", 0.98, "--lanes"),
        (made_up(FUSED, apart=APART, more_lanes=3.5, one_step=1e-4), "gradient", 0.588, "gradient"),
        (made_up(FUSED, apart=APART, more_lanes=1.2, one_step=1e-2), "gradient", 0.588, "gradient"),
    ],
)
def test_what_shares_mean(seen: Profile, bound: str, part: float, says: str) -> None:
    verdict = diagnose(seen)
    assert verdict.bound == bound
    assert verdict.part == pytest.approx(part)
    assert verdict.text.startswith(f"{bound} bounds this run")
    assert says in verdict.text
    assert f"{part:.0%}" in verdict.text


def test_a_lag_that_the_algorithm_does_not_bear_is_not_proposed() -> None:
    waiting = piece("actor", actor_weights=0.5, actor_xla=0.5)
    learner = piece("learner", memory_data=0.55, learner_xla=0.45)
    assert "--lag" not in diagnose(made_up(waiting, learner, most_lag=0)).text


@pytest.mark.parametrize("env", ["gymnasium:Taxi-v4", "my_module:Ant-v5", "envpool:Ant-v5"])
def test_what_envpool_has_not_is_not_looked_for_there(env: str) -> None:
    assert "EnvPool" not in diagnose(made_up(IN_ENV, env=env)).text


def test_where_envpool_is_not_installed_it_is_said_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "is_installed", lambda package: False)
    assert 'envpool:Humanoid-v5 (pip install "rondel[envpool]").' in diagnose(made_up(IN_ENV)).text


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


WIDE = {"lanes": 64, "rollout": 64, "epochs": 2, "hidden": (256, 256)}
SLOW = {"on": "threads", "free": True, "lag": 1, "epochs": 20, "hidden": (256, 256)}
REPLAYED = {"lanes": 8, "rollout": 2, "batch": 16, "updates": 8, "capacity": 64, "warmup": 32}
REPLAYED |= {"hidden": (8,), "tuned": False, "on": "processes", "restarts": 0}
# name: (bound, algorithm, environment, steps, fields): what each is built to be bound by
KNOWN: dict[str, tuple[str, str, Any, int, dict[str, Any]]] = {
    "env": ("env", "ppo", Sleepy, 1_000, {}),
    "room": ("learner", "impala", "CartPole-v1", 3_000, {"plan": "actor*2 | learner", **SLOW}),
    "transport": (
        *("transport", "ppo", "CartPole-v1", 2_000),
        {"plan": "actor*2 | learner", "on": "processes", "rollout": 1, "block": 4},
    ),
    "big": (
        *("transport", "dqn", Big, 400),
        {"plan": "actor | memory | gradient+update", "network": corner, **REPLAYED},
    ),
    "gradient": ("gradient", "ppo", "CartPole-v1", 20_000, WIDE),
    "dispatch": ("dispatch", "ppo", "CartPole-v1", 20_000, {"lanes": 1, "rollout": 128}),
}


@pytest.mark.parametrize("name", few_of(KNOWN, ["env", "room"]))
def test_a_workload_is_named_after_what_bounds_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound, algorithm, env, steps, fields = KNOWN[name]
    settings = fields if name == "big" else SMALL | fields
    settings |= {"lanes": 16, "block": 8} if name == "room" else {}
    settings |= {"eval_episodes": 0, "display": (heard := Heard())}
    monkeypatch.setattr(window, "_FIRST", 0.0)
    monkeypatch.setattr(window, "_SECONDS", 0.0)
    rondel.train(algorithm, env, steps=steps, out=tmp_path, **settings)
    verdict = diagnose(rondel.profile(tmp_path, apart=name in ("gradient", "dispatch")))
    assert verdict.bound == bound, verdict.text
    if name == "room":
        assert "of their time for room" in verdict.text
    if name in ("env", "room"):  # and while it runs
        assert heard.loads[-1].bound == bound, heard.loads[-1]


@pytest.mark.long
def test_what_other_processes_do_is_known_while_they_do_it(tmp_path: Path) -> None:
    for plan in ("actor*2 | learner", "env*2 | policy+learner"):
        heard, out = Heard(), tmp_path / plan.split("*")[0]
        fields = SMALL | {"plan": plan, "on": "processes", "block": 4, "eval_episodes": 0}
        rondel.train("ppo", Sleepy, steps=12_000, out=out, display=heard, **fields)
        seen = heard.loads[-1]
        assert [piece.copies for piece in seen.pieces] == [2, 1]
        assert (seen.bound, seen.whose) == ("env", seen.pieces[0].name), seen
        assert all(piece.memory > 2**20 for piece in seen.pieces)


class Heard(Silent):
    """It remembers the loads that it was to show."""

    def __init__(self) -> None:
        self.loads: list[Load] = []

    def update(self, progress: Progress) -> None:
        self.loads += [progress.load] if progress.load else []


def test_a_run_says_it_at_its_end_and_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, trace = tmp_path / "run", tmp_path / "trace.json"
    plan = ["--plan", "actor*2 | learner", "--on", "threads", "--block", "4"]
    small = ["--lanes", "8", "--rollout", "16", "--epochs", "1", "--hidden", "8"]
    cli.main(["train", "ppo", "probe:both", "--steps", "600", "--out", str(folder), *small, *plan])
    assert "bounds this run: " in capsys.readouterr().err
    cli.main(["profile", str(folder), "--no-apart", "--trace", str(trace)])
    table, _, text = capsys.readouterr().out.partition("\n\n")
    assert "bounds this run: " in text
    assert all(len(line) <= 80 for line in table.splitlines())
    assert "actor x 2" in table
    events = json.loads(trace.read_text())["traceEvents"]
    rows = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert rows == {"actor 1 of 2", "actor 2 of 2", "learner"}
    spans = [event for event in events if event["ph"] == "X"]
    assert {event["tid"] for event in spans} == {event["tid"] for event in events}
    since = time.time() - 600
    assert all(event["ts"] / 1e6 > since and event["dur"] >= 0 for event in spans)


GOOD = made_up(FUSED)
WRONG = [
    *("", "[]", "{}", '{"pieces": 3}', '{"pieces": [[1]]}', "[" * 9999),
    *(json.dumps(dataclasses.asdict(GOOD) | {"pieces": pieces}) for pieces in ([], [[1, 1, []]])),
    json.dumps(dataclasses.asdict(GOOD) | {"pieces": [["all", 1, [["env", "xla", "x", 1, 1, 1]]]]}),
    json.dumps(dataclasses.asdict(GOOD) | {"lanes": "many"}),
    *(json.dumps(dataclasses.asdict(GOOD) | {"apart": apart}) for apart in ({}, {"env": "much"})),
]


def test_a_profile_is_read_as_it_was_written(tmp_path: Path) -> None:
    profile.write(tmp_path, GOOD)
    assert profile.read(tmp_path) == GOOD
    assert {path.name for path in tmp_path.iterdir()} == {profile.FILE}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_profile_gets_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / profile.FILE).write_text(text)
    with pytest.raises(RondelError, match="is no profile"):
        rondel.profile(tmp_path)


def test_a_run_without_a_profile_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RondelError, match="A run writes it at its end"):
        rondel.profile(tmp_path)
