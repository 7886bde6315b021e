"""DDPG, TD3 and Ape-X DDPG: formulas by hand, gradients against NumPy, delays, priorities."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control import SPEC, TWO, a_batch, close, mean, policy_of, q_of, random_like, same

from rondel.algorithms import apex_ddpg, ddpg, td3
from rondel.errors import RondelError
from rondel.ops import random
from rondel.spaces import Box, Discrete
from rondel.types import EnvSpec

KINDS = {"ddpg": ddpg, "td3": td3, "apex-ddpg": apex_ddpg}


@functools.cache
def build(kind="ddpg", **fields):
    """An algorithm with its functions jitted, and its first state."""
    module = KINDS[kind]
    small = {"rollout": 4, "hidden": (4,), "capacity": 400, "batch": 64, "warmup": 32}
    algorithm = module.make(module.Config(**small | fields), SPEC)
    algorithm = algorithm._replace(
        gradient=jax.jit(algorithm.gradient),
        update=jax.jit(algorithm.update),
        absorb=jax.jit(algorithm.absorb),
        prepare=jax.jit(algorithm.prepare),
        act=jax.jit(algorithm.act, static_argnums=4),
    )
    return algorithm, jax.jit(algorithm.init)(random.key(0))


def test_the_ladder_by_hand():
    # Ape-X: 0.4^(1 + 7 i / 3) for the 4 lanes: 0.4, 0.4^(10/3), 0.4^(17/3), 0.4^8
    config = ddpg.Config(noise=0.4, ladder=7.0)
    noise = ddpg.lane_noise(config, jnp.arange(6), lanes=4)
    np.testing.assert_allclose(
        noise, [0.4, 0.0471556, 0.00555911, 0.00065536, 0.00065536, 0.00065536], rtol=1e-4
    )
    alike = ddpg.lane_noise(ddpg.Config(noise=0.1), jnp.arange(3), lanes=4)
    np.testing.assert_allclose(alike, [0.1] * 3, rtol=1e-6)
    # one lane has no ladder to stand on
    np.testing.assert_allclose(ddpg.lane_noise(config, jnp.arange(1), lanes=1), [0.4], rtol=1e-6)


def test_target_smoothing_by_hand():
    action, noise = jnp.array([0.0, 0.0, 0.9, -0.9]), jnp.array([1.0, 5.0, 1.0, -5.0])
    # 0 + 0.2; 0.2 * 5 = 1 is cut at 0.5; 0.9 + 0.2 is cut at 1; -0.9 - 0.5 at -1
    np.testing.assert_allclose(ddpg.smoothed(action, noise, 0.2, 0.5), [0.2, 0.5, 1.0, -1.0])


def test_the_lowest_critic_counts():
    reward, discount = jnp.array([1.0, 1.0]), jnp.array([0.5, 0.0])
    next_q = jnp.array([[4.0, 9.0], [2.0, 9.0]])
    # 1 + 0.5 * min(4, 2) = 2; after a termination the reward alone
    assert ddpg.bellman_target(reward, discount, next_q).tolist() == [2.0, 1.0]


@pytest.mark.parametrize("critics", [1, 2])
def test_the_gradient_is_that_of_the_losses_in_numpy(critics, slopes):
    algorithm, state = build(critics=critics)
    params, target = (random_like(state.params, seed) for seed in range(2))
    batch = a_batch()
    variables = ddpg.Variables(params, target, jnp.float32(0.5), jnp.bool_(True))
    grads, weight, feedback, metrics = algorithm.gradient(variables, batch, random.key(0))
    next_action = np.tanh(policy_of(target["policy"], batch.next_obs))
    next_q = q_of(target["critics"], batch.next_obs, next_action).min(0)
    goal = batch.reward + batch.discount * next_q
    importance = (1 / batch.ratio.astype(np.float64)) ** 0.5
    importance = importance / importance[batch.valid].max()

    def critic_loss(critics):
        error = q_of(critics, batch.obs, batch.action) - goal
        return mean(importance * 0.5 * (error**2).sum(0), batch.valid)

    def policy_loss(policy):
        action = np.tanh(policy_of(policy, batch.obs))
        return -mean(q_of(params["critics"], batch.obs, action)[0], batch.valid)

    close(grads["critics"], slopes(critic_loss, params["critics"]))
    close(grads["policy"], slopes(policy_loss, params["policy"]))
    assert float(metrics["loss/critic"]) == pytest.approx(critic_loss(params["critics"]), rel=1e-4)
    assert float(weight) == batch.valid.sum()
    error = np.abs(q_of(params["critics"], batch.obs, batch.action) - goal).mean(0)
    close(feedback, error)


def test_rows_that_are_not_valid_have_no_influence():
    algorithm, state = build("td3")
    batch, other = a_batch(), a_batch(seed=9)

    def mix(good, bad):
        valid = batch.valid.reshape(-1, *[1] * (good.ndim - 1))
        return np.where(valid, good, bad * 100).astype(good.dtype)

    mixed = jax.tree.map(mix, batch, other)._replace(valid=batch.valid, ratio=batch.ratio)
    variables = algorithm.learning(state)._replace(turn=jnp.bool_(True))
    one = algorithm.gradient(variables, batch, random.key(0))
    two = algorithm.gradient(variables, mixed, random.key(0))
    for i in (0, 1, 3):
        close(one[i], two[i], rtol=1e-5, atol=1e-7)


def test_targets_look_at_noisy_actions():
    algorithm, state = build("td3")
    variables = algorithm.learning(state._replace(target=random_like(state.params, 1)))
    batch = a_batch()
    one, two = (algorithm.gradient(variables, batch, random.key(k))[2] for k in range(2))
    ends = batch.discount == 0.0  # there nothing is looked forward to
    assert same(one[ends], two[ends])
    differs = np.asarray(one)[~ends] != np.asarray(two)[~ends]
    assert differs.mean() > 0.5  # not all: a critic may be flat somewhere


def test_the_noise_of_targets_has_its_deviation_and_its_bound():
    config = td3.Config(hidden=(), target_noise=0.2, target_noise_clip=0.5)
    model = ddpg.model_for(SPEC, config.network, config.hidden, config.critics)
    policy = jax.tree.map(jnp.zeros_like, model.policy.init(random.key(0)))  # always the middle
    noise = ddpg.next_actions(config, model, policy, jnp.zeros((4000, 2)), random.key(1))
    assert float(noise.std()) == pytest.approx(0.2, rel=0.05)
    assert float(jnp.abs(noise).max()) == pytest.approx(0.5)


def test_the_importance_exponent_grows_to_1():
    algorithm, state = build("apex-ddpg", importance_start=0.4, importance_steps=1000)
    for steps, exponent in ((0, 0.4), (500, 0.7), (1000, 1.0)):
        known = algorithm.learning(state._replace(steps=jnp.int32(steps)))
        assert float(known.importance) == pytest.approx(exponent)


def test_the_policy_and_the_targets_move_every_other_time():
    algorithm, state = build("td3", target_rate=0.25)
    batch = a_batch()
    for update in range(1, 5):
        variables = algorithm.learning(state)
        grads, *_ = algorithm.gradient(variables, batch, random.key(update))
        after = algorithm.update(state, grads)
        moves = update % 2 == 0
        assert bool(variables.turn) == moves
        assert any(np.any(x) for x in jax.tree.leaves(grads["policy"])) == moves
        assert not same(after.params["critics"], state.params["critics"])
        for part in ("params", "opt_state"):
            pair = [getattr(one, part)["policy"] for one in (state, after)]
            assert same(*pair) != moves
        target = state.target
        if moves:
            target = jax.tree.map(lambda t, p: 0.75 * t + 0.25 * p, target, after.params)
        close(after.target, target, rtol=1e-5, atol=1e-7)
        state = after


@pytest.mark.parametrize("late", [1, 2, 3])
def test_the_policy_moves_with_gradients_that_come_late(late):
    """As from copies that make their own: asked for with one version, used for another."""
    algorithm, state = build("td3")
    batch, waiting, moved = a_batch(), [], 0
    for update in range(12):
        grads, *_ = algorithm.gradient(algorithm.learning(state), batch, random.key(update))
        waiting.append(grads)
        if len(waiting) > late:
            used = waiting.pop(0)
            after = algorithm.update(state, used)
            moves = not same(after.params["policy"], state.params["policy"])
            assert moves == bool(used["turn"])
            moved, state = moved + moves, after
    assert moved >= 2


def keys(n):
    return jax.jit(lambda: random.fold(random.key(0)[None], jnp.arange(n)))()


@pytest.mark.parametrize("kind", ["ddpg", "apex-ddpg"])
def test_actions_are_the_policys_with_noise(kind):
    n = 4_000
    algorithm, state = build(kind, noise=0.1)
    obs = np.full((n, 2), 0.5, np.float32)
    policy = jax.tree.map(lambda p: 0.3 * p, random_like(state.params["policy"], 0))
    weights = algorithm.acting(state)._replace(policy=policy, warm=jnp.bool_(True))
    ladder = jnp.where(jnp.arange(n) < n // 2, 0.1, 0.02)  # a lane's own, where there is a ladder
    carry = ladder if kind == "apex-ddpg" else algorithm.carry(jnp.arange(n))
    greedy, _, _ = algorithm.act(weights, carry, obs, keys(n), False)
    close(greedy, np.tanh(policy_of(policy, obs)), rtol=1e-5)
    action, carried, _ = algorithm.act(weights, carry, obs, keys(n), True)
    assert same(carried, carry)
    off = np.asarray(action - greedy)
    # of 4000 numbers the deviation is known to 1 / sqrt(8000), that is 1.1 %
    np.testing.assert_allclose(off[: n // 2].std(), 0.1, rtol=0.05)
    second = 0.02 if kind == "apex-ddpg" else 0.1
    np.testing.assert_allclose(off[n // 2 :].std(), second, rtol=0.05)
    assert abs(np.corrcoef(off.T)[0, 1]) < 0.08  # each action has noise of its own


def test_noise_does_not_leave_the_bounds():
    algorithm, state = build(noise=9.0)
    weights = algorithm.acting(state)._replace(warm=jnp.bool_(True))
    action, _, _ = algorithm.act(weights, (), np.zeros((50, 2), np.float32), keys(50), True)
    assert np.abs(action).max() == 1.0


def test_at_first_any_action_is_as_likely_as_another():
    n = 4_000
    algorithm, state = build()
    assert not algorithm.acting(state).warm
    assert algorithm.acting(algorithm.absorb(state, jnp.full(4, 8))).warm  # 32 steps are over
    obs = np.zeros((n, 2), np.float32)
    action, _, _ = algorithm.act(algorithm.acting(state), (), obs, keys(n), True)
    share, _ = np.histogram(np.asarray(action), bins=4, range=(-1.0, 1.0))
    np.testing.assert_allclose(share / (2 * n), 0.25, atol=0.02)


@pytest.mark.parametrize("n", [1, 3])
def test_first_priorities_are_the_errors_that_the_actor_sees(stream, n):
    algorithm, state = build("apex-ddpg", n_step=n, discount=0.9, critics=2)
    assert algorithm.overlap == n - 1
    experience = stream(40, 2)
    experience.action = np.random.default_rng(5).uniform(-1, 1, (40, 2, 2)).astype(np.float32)
    tr = experience.round(1, 20, algorithm.overlap)
    params = random_like(state.params, 4)
    weights = ddpg.Weights(params["policy"], params["critics"], jnp.bool_(True))
    items, steps = algorithm.prepare(weights, tr)
    assert int(steps.sum()) == experience.valid[20:].sum()
    checked = set()
    for b, t in zip(*np.nonzero(np.asarray(items.valid)), strict=True):
        start = 20 - algorithm.overlap + t
        done = (experience.terminated | experience.truncated)[start : start + n, b]
        length = int(done.argmax()) + 1 if done.any() else n
        rewards = experience.reward[start : start + length, b]
        worth = 0.0 if experience.terminated[start + length - 1, b] else 0.9**length
        goal = (rewards * 0.9 ** np.arange(length)).sum()
        after = experience.obs[start + length, b]
        ahead = q_of(params["critics"], after, np.tanh(policy_of(params["policy"], after))).min()
        seen = experience.obs[start, b], experience.action[start, b]
        error = np.abs(q_of(params["critics"], *seen) - (goal + worth * ahead)).mean()
        assert float(items.priority[b, t]) == pytest.approx(error, rel=1e-4, abs=1e-5)
        checked.add((length, worth == 0.0))
    assert len(checked) > 1


def test_a_time_limit_bootstraps_and_a_termination_does_not(stream):
    algorithm, state = build(discount=0.9)
    experience = stream(40, 2)
    experience.action = np.zeros((40, 2, 2), np.float32)
    tr = experience.round(0, 40)
    items, _ = algorithm.prepare(algorithm.acting(state), tr)
    assert experience.truncated.any()
    assert experience.terminated.any()
    worth = np.where(experience.terminated, 0.0, np.float32(0.9)).T
    assert (items.discount == worth)[experience.valid.T].all()
    assert (np.asarray(items.offset) == 1).all()  # obs[t + 1], an episode's last one included


@pytest.mark.parametrize(("ratio", "draws"), [(1.0, 16), (0.25, 4), (2.0, 32), (0.1, 2)])
def test_updates_are_counted_by_environment_steps(ratio, draws):
    # 4 lanes of 4 steps are 16
    algorithm, _ = build(updates_per_step=ratio)
    assert algorithm.memory.draws == draws
    assert algorithm.memory.warmup_rounds == 2


def test_less_than_one_update_in_a_round_is_refused():
    with pytest.raises(RondelError, match=r"round of 16 environment steps.*Use 0.0625 or more"):
        build(updates_per_step=0.01)


def test_actions_without_bounds_are_refused():
    free = Box(np.full(2, -np.inf, np.float32), np.full(2, np.inf, np.float32))
    with pytest.raises(RondelError, match=r"^ddpg needs bounded actions; test:free has Box"):
        ddpg.make(ddpg.Config(), EnvSpec("test:free", TWO, free))


def test_discrete_actions_are_refused_with_what_works():
    with pytest.raises(RondelError, match=r"^ddpg needs continuous actions.*test:choice.*dqn"):
        ddpg.make(ddpg.Config(), EnvSpec("test:choice", TWO, Discrete(3)))
