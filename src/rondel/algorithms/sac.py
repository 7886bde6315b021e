"""Soft actor-critic, with a learned temperature.

Haarnoja et al., Soft Actor-Critic Algorithms and Applications, arXiv 1812.05905. The policy is a
normal distribution squashed into -1..1, the units of actions; the lower of two critics counts. Rows
of a batch are [n, ...], values of c critics [c, n].
"""

from __future__ import annotations

import math
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
from rondel.memory.replay import TransitionBatch, uniform
from rondel.ops import distributions, random
from rondel.ops.statistics import masked_mean
from rondel.types import Algorithm, Array, EnvSpec, Network, Tree

CARD = Card(
    family="off-policy",
    actions="continuous",
    paper="Soft Actor-Critic Algorithms and Applications, arXiv 1812.05905",
    max_lag=None,
)

_LOG_STD = -10.0, 2.0  # of the normal distribution, before it is squashed


@dataclass(frozen=True)
class Config:
    """The algorithm's fields."""

    rollout: int = 2  # steps that each lane takes in a round
    updates_per_step: float = 1.0  # gradient steps per call of the environment
    batch: int = 256  # transitions per gradient step
    capacity: int = 1_000_000  # transitions kept in memory
    warmup: int = 1_000  # environment steps of random actions before the first gradient step
    policy_rate: float = 3e-4  # Adam's step size for the policy
    critic_rate: float = 1e-3  # Adam's step size for the critics
    temperature_rate: float = 1e-3  # Adam's step size for the temperature; 0: a fixed temperature
    temperature: float = 1.0  # initial weight of the entropy
    target_entropy: float | None = None  # aim of the temperature; None: -1 per action dimension
    discount: float = 0.99  # discount of a reward per step
    critics: int = 2  # number of critics; the lowest of their values counts
    target_rate: float = 0.005  # share of the target critics replaced each time
    hidden: tuple[int, ...] = (256, 256)  # widths of the hidden layers
    network: str = "auto"  # auto, mlp, nature, impala, minatar, board, or your own module:function

    def __post_init__(self) -> None:
        check_ranges(self)


class State(NamedTuple):
    params: Tree  # {"policy", "critics", "log_temperature"}
    target: Tree  # of the critics
    opt_state: Tree
    steps: Array  # environment steps so far, no further than the warmup needs


class Weights(NamedTuple):
    policy: Tree
    warm: Array  # () bool: random actions are over


class Variables(NamedTuple):
    params: Tree
    target: Tree


def soft_target(
    reward: Array, discount: Array, next_q: Array, next_log_prob: Array, temperature: Array
) -> Array:
    """r + γ (min Q(s', a') - α log π(a'|s')), the least of critics [c, n]: equations 2 and 3."""
    return reward + discount * (next_q.min(0) - temperature * next_log_prob)


def temperature_loss(log_temperature: Array, log_prob: Array, target_entropy: float) -> Array:
    """-α (log π + target), row by row, equation 18: α rises where the entropy is too low."""
    return -jnp.exp(log_temperature) * jax.lax.stop_gradient(log_prob + target_entropy)


def pi(model: ddpg.Model, policy: Tree, obs: Tree) -> tuple[Array, Array]:
    """Mean and log deviation of the normal distribution before squashing."""
    mean, log_std = jnp.split(model.policy.apply(policy, obs), 2, -1)
    return mean, jnp.clip(log_std, *_LOG_STD)


def sample(model: ddpg.Model, policy: Tree, obs: Tree, normal: Array) -> tuple[Array, Array]:
    """Actions [n, actions] from normal numbers, and their log densities [n]."""
    return distributions.squashed(*pi(model, policy, obs), normal)


def act(
    model: ddpg.Model, weights: Weights, carry: Tree, obs: Tree, keys: Array, explore: bool
) -> Tree:
    """An action of the policy, or without `explore` its mean; random at first."""
    if not explore:
        return jnp.tanh(pi(model, weights.policy, obs)[0]), carry, ()
    normal = random.normal(random.fold(keys, 0), model.actions)
    anything = random.uniform(random.fold(keys, 1), model.actions, -1.0, 1.0)
    action, _ = sample(model, weights.policy, obs, normal)
    return jnp.where(weights.warm, action, anything), carry, ()


def policy_loss(
    model: ddpg.Model, policy: Tree, params: Tree, batch: TransitionBatch, normal: Array
) -> tuple[Array, Array]:
    """α log π(a|s) - min Q(s, a), equation 9; with log π [n]."""
    action, log_prob = sample(model, policy, batch.obs, normal)
    q = model.critics.apply(params["critics"], (batch.obs, action)).min(0)
    temperature = jnp.exp(params["log_temperature"])
    return masked_mean(temperature * log_prob - q, batch.valid), log_prob


def gradient(
    model: ddpg.Model,
    target_entropy: float,
    variables: Variables,
    batch: TransitionBatch,
    key: Array,
) -> Tree:
    """The gradients of critics, policy and temperature."""
    params, valid = variables.params, batch.valid
    log_temperature = params["log_temperature"]
    shape = (2, valid.shape[0], model.actions)
    normal, next_normal = random.normal(key, math.prod(shape)).reshape(shape)
    action, log_prob = sample(model, params["policy"], batch.next_obs, next_normal)
    next_q = model.critics.apply(variables.target, (batch.next_obs, action))
    rows = batch.reward, batch.discount
    target = soft_target(*rows, next_q, log_prob, jnp.exp(log_temperature))
    of_critics = jax.value_and_grad(partial(ddpg.critic_loss, model), has_aux=True)
    (loss, q), critics = of_critics(params["critics"], batch, target, jnp.ones_like(target))
    of_policy = jax.grad(partial(policy_loss, model), has_aux=True)
    policy, log_prob = of_policy(params["policy"], params, batch, normal)

    def mean_temperature_loss(log_temperature: Array) -> Array:
        return masked_mean(temperature_loss(log_temperature, log_prob, target_entropy), valid)

    grads = {
        "policy": policy,
        "critics": critics,
        "log_temperature": jax.grad(mean_temperature_loss)(log_temperature),
    }
    metrics = {
        "loss/critic": loss,
        "q": masked_mean(q.mean(0), valid),
        "entropy": -masked_mean(log_prob, valid),
        "temperature": jnp.exp(log_temperature),
        "grad_norm": optax.tree.norm(critics),
    }
    return grads, valid.sum().astype(jnp.float32), (), metrics


def update(config: Config, state: State, grads: Tree) -> State:
    rates = {"policy": config.policy_rate, "critics": config.critic_rate}
    moved = ddpg.descend_each(state, grads, **rates, log_temperature=config.temperature_rate)
    params, opt_state = ({name: pair[i] for name, pair in moved.items()} for i in range(2))
    target = optax.incremental_update(params["critics"], state.target, config.target_rate)
    return state._replace(params=params, target=target, opt_state=opt_state)


def make(config: Config, spec: EnvSpec, network: Network | None = None) -> Algorithm:
    """SAC for continuous actions; `network` is the user's own torso, if any."""
    ddpg.check_actions(spec, "sac")
    kind, widths = config.network, config.hidden
    model = ddpg.model_for(spec, kind, widths, config.critics, outputs=2, own=network)
    given = config.target_entropy
    target_entropy = -float(model.actions) if given is None else given
    draws = ddpg.draws_of(config.updates_per_step, spec, config.rollout)
    warmup_rounds = math.ceil(config.warmup / (spec.lanes * config.rollout))

    def init(key: Array) -> State:
        k_policy, k_critics = jax.random.split(key)
        params = {
            "policy": model.policy.init(k_policy),
            "critics": model.critics.init(k_critics),
            "log_temperature": jnp.log(jnp.float32(config.temperature)),
        }
        opt_state = {name: ddpg.optimiser().init(part) for name, part in params.items()}
        return State(params, params["critics"], opt_state, jnp.int32(0))

    return Algorithm(
        init=init,
        acting=lambda state: Weights(state.params["policy"], state.steps >= config.warmup),
        learning=lambda state: Variables(state.params, state.target),
        absorb=partial(count_steps, config.warmup),
        gradient=partial(gradient, model, target_entropy),
        update=partial(update, config),
        act=partial(act, model),
        prepare=partial(ddpg.prepare_one_step, config.discount),
        memory=uniform(config.capacity, config.batch, draws, warmup_rounds, space=spec.observation),
        rollout=config.rollout,
        max_lag=CARD.max_lag,
    )
