"""QT-Opt: Q-learning for continuous actions, with a search instead of a policy.

Kalashnikov et al., QT-Opt: Scalable Deep Reinforcement Learning for Vision-Based Robotic
Manipulation, arXiv 1806.10293. The cross-entropy method finds the best action, both to act and for
targets; these are expensive, so the stage `label` computes them. Actions are in units of -1..1.
Rows are [n, ...], actions tried for each of them [n, samples, actions].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rondel.algorithms import ddpg
from rondel.algorithms.card import Card
from rondel.algorithms.descent import count_steps
from rondel.algorithms.ranges import check_ranges
from rondel.errors import RondelError
from rondel.memory.replay import TransitionBatch, uniform
from rondel.ops import random
from rondel.ops.statistics import masked_mean
from rondel.types import Algorithm, Array, EnvSpec, Network, Tree

CARD = Card(
    family="off-policy",
    actions="continuous",
    paper="QT-Opt: Scalable Deep Reinforcement Learning for Vision-Based Robotic Manipulation, "
    "arXiv 1806.10293",
    plan="actor*4 | memory | label*2 | gradient+update",
    max_lag=None,
    lanes=32,
)


@dataclass(frozen=True)
class Config:
    """The algorithm's fields."""

    rollout: int = 1  # steps that each lane takes in a round
    updates_per_step: float = 1.0  # gradient steps per call of the environment
    batch: int = 256  # transitions per gradient step
    capacity: int = 200_000  # transitions kept in memory
    warmup: int = 1_000  # environment steps of random actions before the first gradient step
    learning_rate: float = 1e-3  # Adam's step size
    discount: float = 0.99  # discount of a reward per step
    samples: int = 64  # actions tried in each iteration of the search
    elites: int = 6  # best actions, around which the next iteration searches
    iterations: int = 2  # rounds of tries in a search
    target_rate: float = 0.005  # share of the slow target replaced in each gradient step
    older_every: int = 500  # gradient steps between copies of the slow target to the older one
    noise: float = 0.1  # deviation of the noise on actions
    epsilon: float = 0.1  # share of uniformly random actions
    cross_entropy: bool = False  # learn chances of success, for returns within 0..1
    hidden: tuple[int, ...] = (256, 256)  # widths of the hidden layers
    network: str = "auto"  # auto, mlp, nature, impala, minatar, board, or your own module:function

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.elites > self.samples:
            raise RondelError(f"elites must be at most samples={self.samples}, got {self.elites}.")


class State(NamedTuple):
    params: Tree  # of the critic, as its targets are
    slow: Tree  # a Polyak average of the parameters
    older: Tree  # an earlier copy of it
    opt_state: Tree
    steps: Array  # environment steps so far, no further than the warmup needs
    updates: Array  # gradient steps since the older target was replaced


class Weights(NamedTuple):
    critic: Tree
    warm: Array  # () bool: random actions are over


class Variables(NamedTuple):
    params: Tree
    slow: Tree
    older: Tree


class Labelled(NamedTuple):
    """A batch with targets [n, ...]."""

    obs: Tree
    action: Array
    target: Array
    valid: Array


def cross_entropy_method(
    value: Callable[[Array], Array],
    keys: Array,
    actions: int,
    samples: int,
    elites: int,
    iterations: int,
) -> tuple[Array, Array]:
    """The best action found for each of `keys` [n, actions], and its value [n].

    `value` takes actions [n, samples, actions] and returns [n, samples]. The first actions are
    uniform, the next ones from the normal distribution of the best ones, clipped to -1..1.
    """

    def numbers(draw: Callable[[Array, int], Array], iteration: int) -> Array:
        flat = draw(random.fold(keys, iteration), samples * actions)
        return flat.reshape(-1, samples, actions)

    tried = 2.0 * numbers(random.uniform, 0) - 1.0
    worth = value(tried)
    for iteration in range(1, iterations):
        _, places = jax.lax.top_k(worth, elites)
        best = jnp.take_along_axis(tried, places[:, :, None], 1)
        mean, deviation = best.mean(1, keepdims=True), best.std(1, keepdims=True)
        tried = jnp.clip(mean + deviation * numbers(random.normal, iteration), -1.0, 1.0)
        worth = value(tried)
    place = worth.argmax(1)[:, None]
    action = jnp.take_along_axis(tried, place[:, :, None], 1)[:, 0]
    return action, jnp.take_along_axis(worth, place, 1)[:, 0]


def best_action(
    config: Config, model: ddpg.Model, params: Tree, obs: Tree, keys: Array
) -> tuple[Array, Array]:
    """The best action by the critic, and the critic's output for it."""
    sizes = config.samples, config.elites, config.iterations
    return cross_entropy_method(
        lambda tried: model.critic.apply(params, (obs, tried)), keys, model.actions, *sizes
    )


def values_of(config: Config, out: Array) -> Array:
    """Values from a critic's outputs."""
    return jax.nn.sigmoid(out) if config.cross_entropy else out


def act(
    config: Config,
    model: ddpg.Model,
    weights: Weights,
    carry: Tree,
    obs: Tree,
    keys: Array,
    explore: bool,
) -> Tree:
    """The best action with noise, or with probability epsilon a random one; random at first."""
    action, _ = best_action(config, model, weights.critic, obs, random.fold(keys, 0))
    if not explore:
        return action, carry, ()
    normal = random.normal(random.fold(keys, 1), model.actions)
    anything = random.uniform(random.fold(keys, 2), model.actions, -1.0, 1.0)
    chance = random.uniform(random.fold(keys, 3), 1)
    noisy = jnp.clip(action + config.noise * normal, -1.0, 1.0)
    return jnp.where(weights.warm & (chance >= config.epsilon), noisy, anything), carry, ()


def label(
    config: Config, model: ddpg.Model, variables: Variables, batch: TransitionBatch, keys: Array
) -> Labelled:
    """r + γ min(Q1(s', a'), Q2(s', a')), a' the best by Q1, the slow target; Q2: the older."""
    action, slow = best_action(config, model, variables.slow, batch.next_obs, keys)
    older = model.critic.apply(variables.older, (batch.next_obs, action))
    target = target_of(config, batch, jnp.stack([slow, older]))
    return Labelled(batch.obs, batch.action, target, batch.valid)


def target_of(config: Config, batch: TransitionBatch, out: Array) -> Array:
    """Targets [n], from the outputs [2, n] of both target networks for the next observation."""
    target = ddpg.bellman_target(batch.reward, batch.discount, values_of(config, out))
    return jnp.clip(target, 0.0, 1.0) if config.cross_entropy else target


def loss(config: Config, model: ddpg.Model, params: Tree, batch: Labelled) -> tuple[Array, Array]:
    """Half the squared error, or the cross-entropy of chances; with the values [n]."""
    out = model.critic.apply(params, (batch.obs, batch.action))
    if config.cross_entropy:
        error = optax.sigmoid_binary_cross_entropy(out, batch.target)
    else:
        error = 0.5 * (out - batch.target) ** 2
    return masked_mean(error, batch.valid), values_of(config, out)


def gradient(
    config: Config, model: ddpg.Model, variables: Variables, batch: Labelled, key: Array
) -> Tree:
    del key
    of_loss = jax.value_and_grad(partial(loss, config, model), has_aux=True)
    (value, q), grads = of_loss(variables.params, batch)
    metrics = {
        "loss/critic": value,
        "q": masked_mean(q, batch.valid),
        "td_error": masked_mean(jnp.abs(q - batch.target), batch.valid),
        "grad_norm": optax.tree.norm(grads),
    }
    return grads, batch.valid.sum().astype(jnp.float32), (), metrics


def update(config: Config, state: State, grads: Tree) -> State:
    """A step of the critic; the slow target follows, the older one is replaced now and then."""
    params, opt_state = ddpg.descend(config.learning_rate, state.params, state.opt_state, grads)
    slow = optax.incremental_update(params, state.slow, config.target_rate)
    turn = state.updates + 1 >= config.older_every
    older = jax.tree.map(lambda new, old: jnp.where(turn, new, old), slow, state.older)
    updates = jnp.where(turn, 0, state.updates + 1)
    return State(params, slow, older, opt_state, state.steps, updates)


def make(config: Config, spec: EnvSpec, network: Network | None = None) -> Algorithm:
    """QT-Opt for continuous actions; `network` is the user's own torso, if any."""
    ddpg.check_actions(spec, "qtopt")
    model = ddpg.model_for(spec, config.network, config.hidden, critics=1, own=network)
    draws = ddpg.draws_of(config.updates_per_step, spec, config.rollout)
    warmup_rounds = math.ceil(config.warmup / (spec.lanes * config.rollout))

    def init(key: Array) -> State:
        params = model.critic.init(key)
        opt_state = ddpg.optimiser().init(params)
        return State(params, params, params, opt_state, jnp.int32(0), jnp.int32(0))

    return Algorithm(
        init=init,
        acting=lambda state: Weights(state.params, state.steps >= config.warmup),
        learning=lambda state: Variables(state.params, state.slow, state.older),
        absorb=partial(count_steps, config.warmup),
        label=partial(label, config, model),
        gradient=partial(gradient, config, model),
        update=partial(update, config),
        act=partial(act, config, model),
        prepare=partial(ddpg.prepare_one_step, config.discount),
        memory=uniform(config.capacity, config.batch, draws, warmup_rounds, space=spec.observation),
        rollout=config.rollout,
        max_lag=CARD.max_lag,
    )
