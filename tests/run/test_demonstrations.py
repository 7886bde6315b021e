"""Episodes on disk: what is written is read, and what doesn't fit gets a sentence."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import rondel
from rondel.envs.jax import key_door
from rondel.envs.registry import make
from rondel.errors import RondelError
from rondel.run.playback import record
from rondel.run.playback.record import Episode
from rondel.run.setup import datasets, jax_process
from rondel.spaces import Box, Discrete
from rondel.types import EnvSpec

TWO = Box(np.full(2, -9.0, np.float32), np.full(2, 9.0, np.float32))
SPEC = EnvSpec("test:tree", {"x": TWO, "y": Discrete(5)}, Discrete(3))


def episode(n, terminated=True):
    x, y = np.float32(np.arange(2 * n + 2).reshape(-1, 2)), np.arange(n + 1, dtype=np.int32)
    action = np.arange(n, dtype=np.int32) % 3
    return Episode({"x": x, "y": y}, action, np.ones(n), terminated)


def test_what_was_written_is_read(tmp_path):
    path = str(tmp_path / "shown.safetensors")
    record.write(path, [episode(3), episode(1, terminated=False)])
    read = datasets.read(path, SPEC)
    column = {name: getattr(read, name)[:, 0].tolist() for name in read._fields[1:7]}
    yes, no = True, False
    assert column == {
        "first": [yes, no, no, no, yes, no, no],
        "action": [0, 1, 2, 0, 0, 0],
        "reward": [1, 1, 1, 0, 1, 0],
        "terminated": [no, no, yes, no, no, no],
        "truncated": [no, no, no, no, yes, no],
        "valid": [yes, yes, yes, no, yes, no],
    }
    assert read.obs["y"][:, 0].tolist() == [0, 1, 2, 3, 0, 1, 1]
    assert read.obs["x"].shape == (7, 1, 2)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda arrays: arrays.pop("obs/y"),
            r"obs/y in .* must be int32 \[rows\] for test:tree, got nothing",
        ),
        (
            lambda arrays: arrays.update({"obs/x": np.zeros((4, 3), np.float32)}),
            r"obs/x in .* must be float32 \[rows, 2\] for test:tree, got float32 \[4, 3\]",
        ),
        (lambda arrays: arrays.pop("reward"), "demonstrations of another environment"),
        (
            lambda arrays: arrays["action"].fill(3),
            "Actions in .* must be 0 to 2, those of test:tree",
        ),
    ],
)
def test_what_does_not_fit_gets_a_sentence(change, sentence, tmp_path):
    path = str(tmp_path / "shown.safetensors")
    record.write(path, [episode(3)])
    arrays = load_file(path)
    change(arrays)
    save_file(arrays, path)
    with pytest.raises(RondelError, match=sentence):
        datasets.read(path, SPEC)


def test_what_is_no_file_gets_a_sentence(tmp_path):
    with pytest.raises(RondelError, match="must name a file of recorded episodes"):
        datasets.read("", SPEC)
    with pytest.raises(RondelError, match="There is no file"):
        datasets.read(str(tmp_path), SPEC)
    (tmp_path / "text").write_text("no arrays")
    with pytest.raises(RondelError, match="is not a file of demonstrations"):
        datasets.read(str(tmp_path / "text"), SPEC)
    with pytest.raises(RondelError, match="can't be written"):
        record.write(tmp_path / "no" / "folder", [episode(1)])


def test_a_function_is_recorded_as_it_plays(tmp_path):
    path = str(tmp_path / "shown.safetensors")
    assert rondel.record(key_door.expert, path, "KeyDoor-v0", episodes=5) == 1.0
    read = datasets.read(path, make("KeyDoor-v0").spec)
    assert read.first[:-1].sum() == 5
    assert read.reward.sum() == 5.0
    assert read.terminated.sum() == 5
    assert (read.obs[:-1][read.first[:-1]][:, -1] < key_door.HIDDEN).all()
    assert (read.obs[:-1][~read.first[:-1]][:, -1] == key_door.HIDDEN).all()
    # no two of them are alike
    assert len(np.unique(read.obs[:-1][read.first[:-1]], axis=0)) == 5
    with pytest.raises(RondelError, match="needs an environment"):
        rondel.record(key_door.expert, path)


@pytest.mark.parametrize("env", ["CartPole-v1", "gymnasium:CartPole-v1"])
def test_a_policy_is_recorded_as_it_plays(env, tmp_path):
    path = str(tmp_path / "shown.safetensors")
    with rondel.start("dqn", env, lanes=2, hidden=(4,), tuned=False) as run:
        mean = rondel.record(run, path, episodes=2)
        with pytest.raises(RondelError, match="must have the observations and actions of"):
            rondel.record(run, path, "KeyDoor-v0", overwrite=True)
        with pytest.raises(RondelError, match=r"already exists.* overwrite=True"):
            rondel.record(run, path, episodes=2)
        with pytest.raises(RondelError, match="there is no folder"):
            rondel.record(run, tmp_path / "none" / "shown", episodes=2)
    read = datasets.read(path, make(env).spec)
    assert read.valid.sum() == 2 * mean
    assert (read.obs[0, 0] != read.obs[1, 0]).any()


def test_a_run_after_it_does_not_find_jax_started_otherwise(tmp_path, monkeypatch):
    """What is recorded is the first thing that such a program does, and flags are read but once."""
    asked = []
    monkeypatch.setattr(jax_process, "configure_jax", lambda: asked.append(len(asked)))

    def act(obs, carry):
        assert asked == [0]
        return key_door.expert(obs, carry)

    rondel.record(act, tmp_path / "shown.safetensors", "KeyDoor-v0", episodes=1)
    assert asked == [0]
