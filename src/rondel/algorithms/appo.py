"""Asynchronous PPO: the clipped objective on V-trace targets, with a target network.

Luo et al., IMPACT: Importance Weighted Asynchronous Architectures with Clipped Target Networks,
arXiv 1912.00167. A target network judges the actions of older actors; the clip bounds the distance
of the policy to the target's, not to the actors'. Rows of a batch are lanes' whole rounds, as in
`impala`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import optax

from rondel.algorithms import descent, impala
from rondel.algorithms.impala import Rounds
from rondel.algorithms.ppo import clipped_surrogate
from rondel.nets.actor_critic import ActorCritic, make_networks
from rondel.ops.distributions import Distribution
from rondel.ops.optimisers import adam
from rondel.ops.statistics import masked_mean, standardise
from rondel.types import Algorithm, Array, EnvSpec, Network, Tree

CARD = impala.CARD._replace(
    paper="IMPACT: Importance Weighted Asynchronous Architectures with Clipped Target Networks, "
    "arXiv 1912.00167"
)


@dataclass(frozen=True)
class Config(impala.Config):
    """The algorithm's fields."""

    epochs: int = 2  # passes over a round
    minibatches: int = 4  # parts of a pass, each of some lanes; one gradient step each
    trace_lambda: float = 0.95  # 0: one-step targets, 1: rewards up to the round's end
    entropy_cost: float = 0.0  # weight of the entropy bonus
    clip: float = 0.2  # range of the ratio to the target, 1 ± clip, beyond which it gains nothing
    normalise_advantage: bool = True  # standardise advantages in each minibatch
    target_every: int = 8  # gradient steps between updates of the target network
    target_rate: float = 1.0  # share of the target replaced then; below 1: a Polyak average


class State(NamedTuple):
    params: Tree
    target: Tree
    opt_state: Tree
    steps: Array  # environment steps so far, no further than the annealing needs
    updates: Array  # gradient steps since the target moved


class Variables(NamedTuple):
    params: Tree
    target: Tree


def loss(
    config: Config,
    model: ActorCritic,
    dist: Distribution,
    target: Tree,
    params: Tree,
    rounds: Rounds,
) -> tuple[Array, dict[str, Array]]:
    """V-trace from actors to target, the clipped objective from target to policy."""
    rounds = impala.time_first(rounds)
    still = impala.judge(model, dist, target, rounds)
    judged = impala.judge(model, dist, params, rounds)
    traced = impala.corrected(config, still, rounds)
    advantage = traced.advantage
    if config.normalise_advantage:
        advantage = standardise(advantage, rounds.valid)
    mean = partial(masked_mean, valid=rounds.valid)
    log_ratio = judged.log_prob - still.log_prob
    ratio = jnp.exp(log_ratio)
    policy_loss = -mean(clipped_surrogate(ratio, advantage, config.clip))
    value_loss = mean(0.5 * (judged.value[:-1] - traced.target) ** 2)
    entropy = mean(dist.entropy(judged.dist_params))
    total = policy_loss + config.value_cost * value_loss - config.entropy_cost * entropy
    behind = judged.log_prob - rounds.log_prob
    return total, {
        "loss/policy": policy_loss,
        "loss/value": value_loss,
        "entropy": entropy,
        "kl": mean(jnp.exp(behind) - 1 - behind),  # distance to the actors' policy
        "clipped": mean((jnp.abs(ratio - 1) > config.clip).astype(jnp.float32)),
    }


def gradient(
    config: Config,
    model: ActorCritic,
    dist: Distribution,
    variables: Variables,
    rounds: Rounds,
    key: Array,
) -> Tree:
    rounds_loss = partial(loss, config, model, dist, variables.target)
    return impala.gradient(rounds_loss, None, variables.params, rounds, key)


def update(
    config: Config, optimiser: optax.GradientTransformation, state: State, grads: Tree
) -> State:
    moved = descent.descend(config, optimiser, state, grads)
    updates = (state.updates + 1) % config.target_every
    moves = jnp.where(updates == 0, config.target_rate, 0.0)
    target = optax.incremental_update(moved.params, state.target, moves)
    return moved._replace(target=target, updates=updates)


def make(config: Config, spec: EnvSpec, network: Network | None = None) -> Algorithm:
    """APPO for discrete or continuous actions; `network` is the user's own torso, if any."""
    model, dist = make_networks(config, spec, network)
    optimiser = adam(config.max_grad_norm, epsilon=1e-5)

    def init(key: Array) -> State:
        params = model.init(key)
        return State(params, params, optimiser.init(params), jnp.int32(0), jnp.int32(0))

    return impala.make(config, spec, network)._replace(
        init=init,
        learning=lambda state: Variables(state.params, state.target),
        gradient=partial(gradient, config, model, dist),
        update=partial(update, config, optimiser),
    )
