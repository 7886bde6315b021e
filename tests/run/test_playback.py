"""Videos of a policy: what is shown, where it is written, and who can't be drawn."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import rondel
from rondel import RondelError
from rondel.cli import main
from rondel.envs.errors import EnvError
from rondel.envs.jax.episodic import episodic
from rondel.envs.registry import make
from rondel.run.playback.watch import moments
from run.small import PPO


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rondel.Run:
    folder = tmp_path_factory.mktemp("watched") / "run"
    return rondel.train("ppo", "CartPole-v1", steps=128, out=folder, eval_episodes=0, **PPO)


def test_the_episodes_are_those_of_an_evaluation(run: rondel.Run, tmp_path: Path) -> None:
    seen = rondel.watch(run, tmp_path / "a.gif", episodes=3, seed=4, fps=10)
    played = rondel.evaluate(run, episodes=3, seed=4)
    assert seen.returns == played.returns.tolist()
    assert seen.lengths == played.lengths.tolist()
    assert (seen.path, seen.unfinished) == (tmp_path / "a.gif", 0)
    with Image.open(seen.path) as gif:  # a start and its steps; how it ended is held, as one
        assert gif.n_frames == sum(n + 1 for n in seen.lengths)


def test_an_episode_that_goes_on_is_cut(run: rondel.Run, tmp_path: Path) -> None:
    seen = rondel.watch(run, tmp_path / "a.gif", steps=3)
    assert (seen.lengths, seen.unfinished) == ([3], 1)


def test_the_command(run: rondel.Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.path is not None
    (run.path / "watch.gif").touch()  # of another day
    first = run.path / "checkpoints" / "000001"
    main.main(["watch", str(first), "--json", "--steps", "2"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["path"] == str(run.path / "watch-2.gif")
    assert answer["lengths"] == [2]
    assert (run.path / "watch-2.gif").read_bytes().startswith(b"GIF89a")
    for flags, sentence in {
        ("--out", "watch.avi"): "must end in .gif or .mp4",
        ("--out", str(run.path / "watch.gif")): "--overwrite",
    }.items():
        with pytest.raises(SystemExit):
            main.main(["watch", str(run.path), *flags])
        assert sentence in capsys.readouterr().err


def test_gymnasium_draws_its_own(run: rondel.Run) -> None:
    pytest.importorskip("pygame")
    world = make("gymnasium:CartPole-v1")
    first = next(moments(run.policy, world, 1, 0, 10))
    assert first.picture.shape == (400, 600, 3)


class Bright(gymnasium.Env[Any, Any]):
    """As bright as it has taken steps; observes what CartPole does."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gymnasium.make("CartPole-v1").observation_space
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.zeros(4, np.float32), 1.0, self.steps == 3, False, {}

    def render(self) -> Any:
        return np.full((10, 12, 3), self.steps, np.uint8)


class Old:
    """The same in the manner of old Gym."""

    metadata = {"render.modes": ["rgb_array"]}  # noqa: RUF012
    observation_space, action_space = Bright.observation_space, Bright.action_space

    def __init__(self) -> None:
        self.inner = Bright()

    def seed(self, seed: int) -> None:
        del seed

    def reset(self) -> Any:
        return self.inner.reset()[0]

    def step(self, action: Any) -> Any:
        obs, reward, done, _, info = self.inner.step(action)
        return obs, reward, done, info

    def render(self, mode: str) -> Any:
        assert mode == "rgb_array"
        return self.inner.render()


@pytest.mark.parametrize("env", [Bright, Bright(render_mode="rgb_array"), lambda: Old()])
def test_an_environment_of_your_own_is_asked_for_its_picture(run: rondel.Run, env: Any) -> None:
    seen = list(moments(run.policy, make(env), 2, 0, 10))
    assert [m.picture[0, 0, 0] for m in seen] == [0, 1, 2, 3] * 2
    assert [(m.episode, m.step, m.total, m.over) for m in seen[:4]] == [
        (0, 0, 0.0, False),
        (0, 1, 1.0, False),
        (0, 2, 2.0, False),
        (0, 3, 3.0, True),
    ]


class Blind(Bright):
    def __init__(self) -> None:
        super().__init__()


class Broken(Bright):
    def render(self) -> Any:
        raise ZeroDivisionError("no ink")


class Flat(Bright):
    def render(self) -> Any:
        return np.zeros((10, 10))


def still(draw: Any) -> Any:
    """A JAX environment in which nothing happens."""
    spec = make("CartPole-v1").spec._replace(id="mine:still")
    return episodic(
        spec,
        start=lambda keys: jnp.zeros(keys.shape),
        move=lambda x, _: (x, x, x == 0),
        observe=lambda x: jnp.stack([x] * 4, axis=-1),
        draw=draw,
    )


@pytest.mark.parametrize(
    ("env", "kind", "sentence"),
    [
        (Blind, RondelError, "own:Blind has no picture to show.*render_mode"),
        (Broken, EnvError, "own:Broken can't be drawn: ZeroDivisionError: no ink"),
        (Flat, RondelError, r"must be drawn as uint8 .*, got float64 of shape \(10, 10\)"),
        (still(None), RondelError, "mine:still has no picture to show.*draw"),
        (still(lambda x: 1 // 0), EnvError, r"draw\(\) of mine:still raised ZeroDivision"),
        (still(lambda x: "a horse"), RondelError, "uint8 of shape"),
    ],
)
def test_what_can_not_be_drawn_gets_a_sentence(
    run: rondel.Run, tmp_path: Path, env: Any, kind: Any, sentence: str
) -> None:
    with pytest.raises(kind, match=sentence):
        rondel.watch(run, tmp_path / "a.gif", env=env)
    assert not list(tmp_path.iterdir())


def test_draw_is_given_one_lane_in_numpy(run: rondel.Run) -> None:
    given = []

    def draw(x: Any) -> Any:
        given.append(x)
        return np.zeros((4, 4, 3), np.uint8)

    assert len(list(moments(run.policy, still(draw), 1, 0, 10))) == 2
    assert all(isinstance(x, np.ndarray) and x.shape == () for x in given)


class Loud(gymnasium.Env[Any, Any]):
    """It remembers what it was told of sound and screens."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gymnasium.make("CartPole-v1").observation_space
    action_space = gymnasium.spaces.Discrete(2)
    heard: list[tuple[str | None, str | None]] = []  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(4, np.float32), 1.0, True, False, {}

    def render(self) -> Any:
        screens = os.environ.get("XDG_RUNTIME_DIR")
        if screens and os.path.isdir(screens):
            screens = f"a folder of {len(os.listdir(screens))}"
        self.heard.append((os.environ.get("SDL_AUDIODRIVER"), screens))
        return np.zeros((16, 16, 3), np.uint8)


NAMES = ("SDL_AUDIODRIVER", "XDG_RUNTIME_DIR")


@pytest.mark.parametrize("told", [(None, None), ("alsa", None), (None, "/nowhere")])
def test_neither_sound_nor_a_screen_is_looked_for(
    told: tuple[str | None, str | None],
    run: rondel.Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where there is none of them, their libraries would complain on stderr, line after line."""
    for name, value in zip(NAMES, told, strict=True):
        monkeypatch.delenv(name, raising=False)
        if value:  # its user's word goes first
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    Loud.heard.clear()
    rondel.watch(run, tmp_path / "a.gif", env=Loud)
    driver, screens = told
    assert set(Loud.heard) == {(driver or "dummy", screens or "a folder of 0")}
    assert tuple(os.environ.get(name) for name in NAMES) == told
    assert not list((tmp_path / "temporary").iterdir())


def test_without_room_for_an_empty_folder_there_is_a_video(
    run: rondel.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    assert rondel.watch(run, tmp_path / "a.gif", env=Loud).path.exists()
