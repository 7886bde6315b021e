"""Training from stacked frames: the same numbers whether memory stores them once or whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rondel
from rondel.envs.guard.check import check
from rondel.execution.stages.task import bytes_of
from rondel.spaces import MASK, Box, Discrete, MultiBinary
from rondel.types import Env, EnvSpec, Step

STACKED, SHAPE = 3, (3, 4, 4)


def flicker(frames):
    """Random frames of 4 x 4 bytes, three in a stack. The action that the newest asks for pays.

    Every second end of an episode is a lost life: the next begins, but frames go on. Episodes end
    by chance or after 9 steps.
    """
    image = Box(np.zeros(SHAPE, np.uint8), np.full(SHAPE, 255, np.uint8), "uint8", frames)
    last = Box(np.zeros(1, np.float32), np.full(1, 9, np.float32))
    space = {"image": image, "length": last, MASK: MultiBinary((3,))}

    def draw(word):
        pixel = jnp.arange(16, dtype=jnp.uint32).reshape(1, 4, 4)
        mixed = (word[:, None, None] * 16 + pixel) * jnp.uint32(2654435761)
        return (mixed >> 24).astype(jnp.uint8)

    def observe(stack, length):
        bright = (stack[:, 0, 0, 0] % 2).astype(jnp.int8)
        allowed = jnp.ones((len(length), 3), jnp.int8).at[:, 0].set(bright)
        return {"image": stack, "length": length[:, None].astype(jnp.float32), MASK: allowed}

    def init(keys):
        word = jax.random.key_data(keys)[:, 1]
        stack = jnp.repeat(draw(word)[:, None], STACKED, axis=1)
        zero, never = jnp.zeros(len(word)), jnp.zeros(len(word), bool)
        length = zero.astype(jnp.int32)
        state = word, stack, jnp.zeros_like(length), never, zero, length
        return state, Step(observe(stack, length), zero, never, never, ~never, zero, length)

    def step(state, action):
        word, stack, ends, first, total, length = state
        word, pays = word * jnp.uint32(1664525) + 1013904223, stack[:, -1, 0, 0] % 3 == action
        frame = draw(word)[:, None]
        whole = (first & (ends % 2 == 0)).reshape(-1, 1, 1, 1)
        shifted = jnp.concatenate([stack[:, 1:], frame], axis=1)
        stack = jnp.where(whole, jnp.repeat(frame, STACKED, axis=1), shifted)
        reward = jnp.where(first, 0.0, pays.astype(jnp.float32))
        total = jnp.where(first, 0.0, total + reward)
        length = jnp.where(first, 0, length + 1)
        terminated = ~first & (frame[:, 0, 1, 1] < 30)
        truncated = length >= 9
        over = terminated | truncated
        state = word, stack, ends + over, over, total, length
        seen = observe(stack, length)
        return state, Step(seen, reward, terminated, truncated, first, total, length)

    return Env(EnvSpec("test:flicker", space, Discrete(3)), init, step)


DQN = {
    "rollout": 4,
    "updates": 3,
    "batch": 16,
    "capacity": 250,  # 7.8 rounds: the ring comes round a few times
    "warmup": 64,
    "n_step": 3,
    "hidden": (8,),
}
PPO = {"rollout": 16, "epochs": 2, "minibatches": 4, "hidden": (8,)}
FIELDS = {
    "ppo": PPO,
    "remembering ppo": PPO | {"memory": "gru", "memory_size": 8, "sequence": 8},
    "remembering a2c": {"rollout": 16, "hidden": (8,), "memory": "lstm", "memory_size": 8},
    "r2d2": DQN | {"memory_size": 8, "sequence": 8, "overlap": 4, "burn_in": 4},
    "dqn": DQN,
    "ranked dqn": DQN | {"prioritised": True, "dueling": True},
}


def start(name, frames, steps=1_200, **more):
    fields = FIELDS[name] | {"lanes": 8, "block": 4, "tuned": False, "seed": 1} | more
    return rondel.start(name.split()[-1], flicker(frames), steps=steps, **fields)


def trained(*args, **more):
    run = start(*args, **more)
    metrics = [report.metrics for report in run.rounds()]
    return run, metrics


def learner(run):
    return jax.tree.map(np.asarray, run.state)


def test_the_environment_keeps_its_promise():
    check(flicker(STACKED))


@pytest.mark.parametrize(
    ("name", "more"),
    [
        pytest.param("ppo", {"normalise_observations": True}, marks=pytest.mark.long),
        pytest.param("remembering ppo", {}, marks=pytest.mark.long),
        pytest.param("remembering a2c", {}, marks=pytest.mark.long),
        pytest.param("r2d2", {}, marks=pytest.mark.long),
        pytest.param("dqn", {}, marks=pytest.mark.long),
        pytest.param("ranked dqn", {}, marks=pytest.mark.long),
        pytest.param(
            "ranked dqn",
            {"plan": "actor*2 | memory*2 | gradient+update", "on": "inline", "block": 4},
            marks=pytest.mark.long,
        ),
    ],
    ids=str,
)
def test_training_is_the_same_bit_for_bit(name, more):
    whole, framed = trained(name, 1, **more), trained(name, STACKED, **more)
    assert len(whole[1]) > 8  # rounds
    jax.tree.map(np.testing.assert_array_equal, whole[1], framed[1])
    jax.tree.map(np.testing.assert_array_equal, learner(whole[0]), learner(framed[0]))


@pytest.mark.long
def test_a_checkpoint_keeps_the_frames(tmp_path):
    fields = {"eval_episodes": 0, "lanes": 8, "tuned": False, "seed": 1, **FIELDS["ranked dqn"]}
    env = flicker(STACKED)
    long = rondel.train("dqn", env, steps=1_200, out=tmp_path / "long", **fields)
    rondel.train("dqn", env, steps=600, out=tmp_path / "short", **fields)
    resumed = rondel.resume(tmp_path / "short", env=env, steps=1_200, eval_episodes=0)
    jax.tree.map(np.testing.assert_array_equal, learner(long), learner(resumed))


@pytest.mark.parametrize("name", FIELDS)
def test_explain_counts_frames_once(name):
    held = []
    for frames in (1, STACKED):
        fields = FIELDS[name] | {"lanes": 8, "tuned": False}
        facts = rondel.explain(name.split()[-1], flicker(frames), **fields)
        held.append(facts.pieces[0].holds["memory"])
        run = start(name, frames)
        assert held[-1] == bytes_of(run.ring.stored())
    rows = 256 if name.endswith(("dqn", "r2d2")) else 128
    assert held[0] - held[1] > 0.5 * rows * 2 * 16  # 2 of 3 frames of 16 bytes, but for the edges
