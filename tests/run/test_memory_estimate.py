"""What a run will take of memory, before it takes it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rondel
from rondel.execution.stages.task import without_keys
from rondel.memory.frames import Film, Frames
from rondel.run.setup import jax_process, shape_model
from rondel.run.setup.prepare import Setup, prepare
from rondel.run.setup.shape_model import MemoryEstimate, PieceMemory
from rondel.run.training import train_loop
from run.small import DQN

GIB = 2**30
SMALL = {name: value for name, value in DQN.items() if name != "tuned"}


def estimate(setup: Setup) -> MemoryEstimate:
    return shape_model.estimate(setup.task, setup.lowering, setup.options.on)


def held(tree: Any) -> int:
    return sum(x.nbytes for x in jax.tree.leaves(without_keys(tree)))


def test_it_is_what_a_run_then_holds() -> None:
    with rondel.start("dqn", "CartPole-v1", steps=100, **DQN) as run:
        (piece,) = estimate(run.setup).pieces
        assert piece.holds["memory"] == held(run.ring.stored())
        assert piece.holds["weights"] + piece.holds["optimiser"] == held(run.state)
        assert piece.holds["env"] == held(run.ring.tree()["env"])


def test_each_piece_has_its_own() -> None:
    fields = SMALL | {"plan": "actor*2 | memory | gradient+update", "lanes": 8, "block": 4}
    found = estimate(prepare("dqn", "CartPole-v1", fields=fields))
    assert [piece.holds.keys() for piece in found.pieces] == [
        {"weights", "rollout", "env", "messages"},
        {"memory", "messages"},
        {"weights", "optimiser", "gradients", "batch"},
    ]
    assert found.processes == 5  # the driver's among them
    lagged = estimate(prepare("dqn", "CartPole-v1", fields=fields | {"lag": 3}))
    assert lagged.pieces[0].holds["rollout"] > 2 * found.pieces[0].holds["rollout"]
    items, batch = (piece.holds["messages"] for piece in found.pieces[:2])
    assert lagged.pieces[0].holds["messages"] == 4 * items
    assert batch == 2 * items + found.pieces[2].holds["batch"]  # of both actors, on their way in
    here = estimate(prepare("dqn", "CartPole-v1", fields=fields | {"on": "threads"}))
    assert "messages" not in here.pieces[0].holds
    assert estimate(prepare("dqn", "CartPole-v1", fields=SMALL)).processes == 1


def test_devices_share_lanes_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = SMALL | {"plan": "actor+memory | gradient*2 | update"}
    apart = estimate(prepare("dqn", "CartPole-v1", fields=fields | {"on": "threads"}))
    monkeypatch.setattr(jax, "local_device_count", lambda: 2)
    spread = estimate(prepare("dqn", "CartPole-v1", fields=fields | {"on": "inline"}))
    (actor, gradient, update), before = spread.pieces, apart.pieces
    assert [piece.copies for piece in spread.pieces] == [1, 2, 1]
    # the policy and its environments are on one device
    once = ("weights", "rollout", "env")
    assert [actor.holds[what] for what in once] == [before[0].holds[what] for what in once]
    assert actor.holds["memory"] == 2 * before[0].holds["memory"]
    # a device draws all of a batch, and takes its part of that
    assert gradient.holds == before[1].holds | {"batch": 2 * before[1].holds["batch"]}
    assert update.holds == {what: 2 * n for what, n in before[2].holds.items()}


def test_frames_that_are_stored_once_are_named() -> None:
    film = Film(Frames(jnp.zeros((2, 13, 4, 4), np.uint8), jnp.zeros((2, 10), int)), jnp.int32(0))
    assert shape_model._frames((film, jnp.zeros(100))) == 2 * 13 * 4 * 4


def test_what_does_not_fit_gets_a_sentence_with_the_knob() -> None:
    pieces = (
        PieceMemory("actor", 4, {"weights": 1, "rollout": GIB // 4}),
        PieceMemory("learner", 1, {"memory": 5 * GIB, "weights": 1}),
    )
    run = MemoryEstimate(pieces, 6, GIB)  # 4 x 1/4 + 5 + 1
    assert run.warning(8 * GIB) == ""
    assert run.warning(0) == ""  # nobody knows what is free
    assert run.warning(4 * GIB) == (
        "This run needs about 7.0 GiB, but only 4.0 GiB is free, so it may be killed. Most of it "
        "is memory (5.0 GiB). Use a smaller capacity."
    )
    compiled = run._replace(compiling=GIB)  # which counts, since it is not given back
    assert compiled.warning(7 * GIB).startswith("This run needs about 8.0 GiB, but only 7.0 GiB")
    many = MemoryEstimate(pieces[:1], 100, 30 * GIB)
    assert many.warning(4 * GIB).endswith("processes (30.0 GiB). Use fewer copies.")


def test_several_seeds_share_a_driver() -> None:
    fields = SMALL | {"plan": "actor*2 | learner", "block": 4, "on": "processes"}
    one = estimate(prepare("dqn", "CartPole-v1", fields=fields))
    three = one.times(3)
    assert (one.processes, three.processes) == (4, 10)
    assert three.total == 3 * one.total - 2 * shape_model._DRIVER
    assert [piece.copies for piece in three.pieces] == [6, 3]
    assert three.warning(2**20).endswith(" or fewer seeds.")
    assert one.times(1) == one


def test_what_is_left_of_compiling_is_told_by_what_a_process_does() -> None:
    one = estimate(prepare("dqn", "CartPole-v1", fields=SMALL))
    assert (one.driver, one.process_bytes) == (shape_model._WHOLE, shape_model._WHOLE)
    assert one.compiling == 2 * shape_model._COMPILING  # it acts and learns
    assert one.times(4).compiling == one.compiling  # one program for all of them
    fields = SMALL | {"plan": "actor*2 | memory | gradient+update", "lanes": 8, "block": 4}
    cut = estimate(prepare("dqn", "CartPole-v1", fields=fields))
    assert cut.process_bytes == shape_model._DRIVER + 4 * shape_model._PIECE
    assert cut.compiling == 3 * shape_model._COMPILING  # two act, and one makes gradients
    assert cut.times(2).compiling == 6 * shape_model._COMPILING
    here = estimate(prepare("dqn", "CartPole-v1", fields=fields | {"on": "threads"}))
    assert (here.process_bytes, here.compiling) == (
        shape_model._WHOLE,
        2 * shape_model._COMPILING,
    )


def test_it_is_said_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(jax_process, "free_memory", lambda: 2**20)
    train_loop.estimate_memory(prepare("dqn", "CartPole-v1", fields=SMALL))
    assert "it may be killed" in caplog.text
    there = {"plan": "actor | learner", "on": "ray", "address": "10.0.0.1:6379"}
    caplog.clear()
    train_loop.estimate_memory(prepare("dqn", "CartPole-v1", fields=SMALL | there))
    assert caplog.text == ""  # that is another machine


def test_a_machine_has_more_than_is_free() -> None:
    assert 2**20 < jax_process.free_memory() <= jax_process.memory()
