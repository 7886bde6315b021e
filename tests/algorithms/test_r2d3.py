"""R2D3: how demonstrations lie in memory, plans, and what they are good for."""

import jax
import numpy as np
import pytest

import rondel
from execution.test_equality import BLOCK, LANES, SEED, assert_equal, run
from rondel.algorithms import r2d3
from rondel.envs.jax import key_door
from rondel.envs.registry import make
from rondel.errors import RondelError
from rondel.execution.loop.ring import Ring
from rondel.execution.stages.shapes import produced_like
from rondel.execution.stages.task import Task
from rondel.plan.parser import parse
from rondel.run.setup import datasets

ENV = make("KeyDoor-v0")
# sequences of 2 + 6 rows that begin at every second
TINY = {"rollout": 4, "updates": 2, "batch": 32, "capacity": 2_000, "warmup": 200, "hidden": (8, 8)}
TINY |= {"memory_size": 4, "sequence": 6, "overlap": 4, "burn_in": 2, "n_step": 3}
TINY |= {"demo_ratio": 0.5}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("shown") / "file")
    rondel.record(key_door.expert, path, ENV.spec.id, episodes=3)
    return path


def built(shown, **fields):
    track = datasets.read(shown, ENV.spec)
    spec = ENV.spec._replace(lanes=LANES)
    return r2d3.make(r2d3.Config(**TINY | fields), spec, demonstrations=track), track


def test_each_episode_begins_where_a_sequence_does():
    first = np.array([True, False, False, True, False, False, True])
    places = r2d3.layout(first, stride=2, before=3, after=6)
    none = [-1]
    assert places.tolist() == none * 4 + [0, 1, 2, -1] + [3, 4, 5, -1] + [6, -1] + none * 6


def test_all_that_was_shown_can_be_drawn(shown):
    algorithm, track = built(shown, demo_ratio=1.0, batch=512)
    memory = algorithm.memory
    draw = jax.jit(lambda like, key: memory.draw(memory.init(like, 1), key, 0)[0])
    batch = draw(_items_like(algorithm), jax.random.key(0))
    # what counts: the rows after the burn-in but for the last one
    valid = np.asarray(batch.rows.valid)[:, 2:-1]
    drawn = np.asarray(batch.rows.obs)[:, 2:-1][valid]
    there = track.obs[:-1][track.valid]
    assert {tuple(o) for o in drawn.tolist()} == {tuple(o) for o in there.tolist()}
    assert np.asarray(batch.rows.reward).max() == 1.0


def _items_like(algorithm):
    items, _ = produced_like(Task(algorithm, ENV, SEED, LANES, BLOCK), LANES)
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), items)


def result(shown, plan, lag):
    ring = Ring(Task(built(shown)[0], ENV, SEED, LANES, BLOCK), parse(plan, lag))
    try:
        return run(ring, 900)
    finally:
        ring.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("plan", "other"),
    [
        ("all", "actor*2 | memory | gradient+update"),
        ("actor+memory*2 | gradient+update", "actor*2 | memory*2 | gradient+update"),
    ],
)
def test_other_plans_give_the_same_numbers(plan, other, shown):
    assert_equal(result(shown, other, 2), result(shown, plan, 2))


@pytest.mark.long
def test_a_run_goes_on_with_what_it_was_shown(shown, tmp_path):
    fields = TINY | {"demonstrations": shown, "lanes": 8, "tuned": False, "eval_episodes": 0}
    whole = rondel.train("r2d3", "KeyDoor-v0", steps=1_200, out=tmp_path / "one", **fields)
    rondel.train("r2d3", "KeyDoor-v0", steps=600, out=tmp_path / "two", **fields)
    parts = rondel.resume(tmp_path / "two", steps=1_200)
    jax.tree.map(np.testing.assert_array_equal, parts.state, whole.state)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "demonstrations must name a file"),
        ({"demonstrations": "nowhere"}, "There is no file"),
        ({"demo_ratio": 2.0}, "demo_ratio must be from 0 to 1, got 2.0"),
    ],
)
def test_what_can_not_work_gets_a_sentence(fields, sentence):
    with pytest.raises(RondelError, match=sentence):
        rondel.start("r2d3", "KeyDoor-v0", **fields)


def test_rewards_that_change_their_scale_are_refused(shown):
    with pytest.raises(RondelError, match="can't scale the rewards of demonstrations"):
        rondel.start("r2d3", "KeyDoor-v0", demonstrations=shown, scale_rewards=True)


def test_without_any_there_is_nothing_to_learn_from():
    with pytest.raises(RondelError, match="r2d3 needs demonstrations"):
        r2d3.make(r2d3.Config(), ENV.spec)
