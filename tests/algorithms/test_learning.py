"""Learning on the probes: the values are known, and the probe that fails names the broken part."""

import jax.numpy as jnp
import numpy as np
import pytest

import rondel
from marks import few_of
from rondel.algorithms import dqn
from rondel.envs.registry import make
from rondel.nets.mlp import mlp
from rondel.spaces import Box
from rondel.types import Env

HIDDEN = (16,)
SIGNS = np.array([[-1.0], [1.0]], np.float32)
PARTS = {
    "one": "the value loss",
    "observation": "how values depend on what is seen",
    "delay": "bootstrapping",
    "action": "the policy",
    "both": "policy and value together",
    "continuous": "the scaling of actions",
}


def learn(algorithm, probe, steps, **fields):
    env = f"probe:{probe}" if isinstance(probe, str) else probe
    run = rondel.start(algorithm, env, steps=steps, tuned=False, **fields)
    for _ in run.rounds():
        pass
    return run


def close(got, expected, probe, atol=0.1):
    broken = f"probe:{probe} is not learned: look at {PARTS[probe]}"
    np.testing.assert_allclose(got, expected, atol=atol, err_msg=broken)


def ppo_on(probe, steps=6_000, **fields):
    settings = {"rollout": 16, "learning_rate": 0.01, "gae_lambda": 0.9} | fields
    run = learn("ppo", probe, steps, lanes=8, hidden=HIDDEN, discount=0.5, **settings)
    critic = mlp(run.setup.task.env.spec.observation, HIDDEN, 1)

    def value(obs):
        return np.asarray(critic.apply(run.state.params["critic"], np.float32(obs)))[:, 0]

    return run, value


# observations, and their values under the best policy with discount 1/2
VALUES = {
    "one": ([[0.0]], [1.0]),
    "observation": (SIGNS, [-1.0, 1.0]),
    "delay": ([[0.0], [1.0]], [0.5, 1.0]),
    "action": ([[0.0]], [1.0]),
    "both": (SIGNS, [1.0, 1.0]),
}
BEST = {"action": [1], "both": [0, 1]}


@pytest.mark.parametrize("probe", few_of(VALUES, ["delay", "both"]))
def test_ppo_finds_values_and_actions(probe):
    run, value = ppo_on(probe)
    obs, expected = VALUES[probe]
    if probe in BEST:
        broken = f"probe:{probe} is not learned: look at {PARTS[probe]}"
        assert run.policy.act(np.float32(obs)).tolist() == BEST[probe], broken
        assert run.evaluate(50).mean == 1.0
    close(value(obs), expected, probe)


FAMILY = {
    "a2c": {"rollout": 8, "entropy_cost": 0.0},
    "impala": {"rollout": 8, "entropy_cost": 0.0, "lag": 2, "plan": "actor | learner"},
    "appo": {"rollout": 8, "lag": 2, "plan": "actor | learner"},
    "pg": {"rollout": 8, "longest": 2},
}


@pytest.mark.parametrize("probe", few_of(["delay", "both"], ["both"]))
@pytest.mark.parametrize("name", few_of(FAMILY, ["a2c", "impala", "pg"]))
def test_the_family_finds_values_and_actions(name, probe):
    settings = {"learning_rate": 0.01, "lanes": 8, "hidden": HIDDEN, "discount": 0.5}
    run = learn(name, probe, 20_000, on="inline", **settings, **FAMILY[name])
    obs, expected = VALUES[probe]
    critic = mlp(run.setup.task.env.spec.observation, HIDDEN, 1)
    close(critic.apply(run.state.params["critic"], np.float32(obs))[:, 0], expected, probe)
    if probe in BEST:
        assert run.policy.act(np.float32(obs)).tolist() == BEST[probe]


@pytest.mark.parametrize("memory", few_of(["gru", "lstm"], []))
def test_impala_remembers_though_its_actors_are_behind(memory):
    run = learn(
        "impala", "memory", 60_000, lanes=16, rollout=16, hidden=HIDDEN, learning_rate=0.003,
        minibatches=4, discount=0.9, memory=memory, memory_size=16, plan="actor | learner", lag=2,
        on="inline",
    )  # fmt: skip
    assert run.evaluate(200).mean == 1.0


@pytest.mark.long
def test_ppo_finds_continuous_actions():
    run, value = ppo_on("continuous", steps=60_000, learning_rate=0.003)
    x = np.float32([[-0.8], [0.0], [0.6]])
    close(run.policy.act(x), x, "continuous", atol=0.2)
    # the best action and no noise: 0; a policy that does not look gets -1/3
    close(value(x), [0.0, 0.0, 0.0], "continuous", atol=0.2)
    assert run.evaluate(50).mean > -0.03


def test_without_memory_a_policy_stays_at_chance():
    """The last observation says nothing of the cue: a return above 0 would be a leak."""
    run, value = ppo_on("memory")
    # of 100 episodes of -1 or +1 the mean has a deviation of 0.1
    assert abs(run.return_mean) < 0.35
    close_to_chance = value([[0.0, 1.0]])
    assert abs(close_to_chance[0]) < 0.35


def dqn_on(probe, **fields):
    settings = {"rollout": 4, "updates": 16, "warmup": 100, "target_every": 20, "double": True}
    settings |= {"capacity": 2_000, "batch": 32, "learning_rate": 0.01, "epsilon_end": 0.2}
    settings |= fields
    run = learn(
        "dqn", probe, 2_500, lanes=8, hidden=settings.pop("hidden", HIDDEN), discount=0.5,
        epsilon_steps=1_000, **settings,
    )  # fmt: skip
    net = dqn.network_for(run.setup.config, run.setup.task.env.spec, 2)
    return run, lambda obs: np.asarray(net.apply(run.state.params, np.float32(obs)))


# observations, and what both actions are worth
Q_VALUES = {
    "one": ([[0.0]], [[1.0, 1.0]]),
    "observation": (SIGNS, [[-1.0, -1.0], [1.0, 1.0]]),
    "delay": ([[0.0], [1.0]], [[0.5, 0.5], [1.0, 1.0]]),
    "action": ([[0.0]], [[-1.0, 1.0]]),
    "both": (SIGNS, [[1.0, -1.0], [-1.0, 1.0]]),
}


@pytest.mark.parametrize("probe", few_of(Q_VALUES, ["delay", "both"]))
def test_dqn_finds_what_actions_are_worth(probe):
    run, q = dqn_on(probe, double=probe != "delay")
    obs, expected = Q_VALUES[probe]
    close(q(obs), expected, probe)
    if probe in BEST:
        assert run.policy.act(np.float32(obs)).tolist() == BEST[probe]


def test_dqn_with_everything_finds_the_same():
    _, q = dqn_on("delay", dueling=True, hidden=(16, 16), prioritised=True, n_step=3)
    obs, expected = Q_VALUES["delay"]
    close(q(obs), expected, "delay")


def shown(obs):
    """A number [b, 1] as the colour of an image of 3 x 3."""
    return jnp.tile(obs[:, :, None, None], (1, 3, 3, 1))


def on_a_screen(env):
    """The same task, seen as an image."""

    def init(keys):
        state, step = env.init(keys)
        return state, step._replace(obs=shown(step.obs))

    def step(state, action):
        state, after = env.step(state, action)
        return state, after._replace(obs=shown(after.obs))

    screen = Box(np.full((3, 3, 1), -1.0, np.float32), np.ones((3, 3, 1), np.float32))
    return Env(env.spec._replace(id="test:screen", observation=screen), init, step)


@pytest.mark.long
def test_dqn_finds_what_actions_are_worth_by_an_image():
    run, q = dqn_on(on_a_screen(make("probe:both")), dueling=True, prioritised=True)
    assert run.state.params["torso"][0][0]["w"].shape == (3, 3, 1, 16)  # "auto" is minatar
    obs, expected = Q_VALUES["both"]
    close(q(shown(obs)), expected, "both")


def test_normalised_observations_and_scaled_rewards_keep_the_best_policy(tmp_path):
    run = rondel.train(
        "ppo", "probe:both", steps=6_000, tuned=False, lanes=8, rollout=16, hidden=HIDDEN,
        learning_rate=0.01, normalise_observations=True, scale_rewards=True,
        out=tmp_path / "run", eval_episodes=50,
    )  # fmt: skip
    assert run.policy.act(SIGNS).tolist() == BEST["both"]
    assert run.result["eval_return"] == 1.0


def control_on(probe, algorithm, **fields):
    settings = {
        "rollout": 4,
        "updates_per_step": 0.5,
        "batch": 64,
        "capacity": 4_000,
        "warmup": 200,
    }
    settings |= {"policy_rate": 0.003, "critic_rate": 0.01, "target_rate": 0.05, "hidden": (32,)}
    return learn(algorithm, probe, 3_000, lanes=8, discount=0.5, **settings | fields)


@pytest.mark.parametrize(
    "algorithm",
    few_of(["sac", "apex-ddpg", "ddpg", "td3"], ["sac"]),
)
def test_off_policy_algorithms_find_continuous_actions(algorithm):
    run = control_on("continuous", algorithm)
    x = np.float32([[-0.8], [0.0], [0.6]])
    close(run.policy.act(x), x, "continuous", atol=0.2)
    assert run.evaluate(50).mean > -0.03


@pytest.mark.long
def test_qtopt_finds_continuous_actions_by_search():
    run = learn(
        "qtopt", "continuous", 3_000, lanes=8, rollout=4, updates_per_step=0.5, batch=32,
        capacity=4_000, warmup=200, learning_rate=0.01, target_rate=0.05, hidden=(32,),
    )  # fmt: skip
    x = np.float32([[-0.8], [0.0], [0.6]])
    close(run.policy.act(x), x, "continuous", atol=0.2)
    assert run.evaluate(50).mean > -0.03
