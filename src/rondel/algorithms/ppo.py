"""Proximal policy optimisation.

Schulman et al., Proximal Policy Optimization Algorithms, arXiv 1707.06347; advantages after
Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage Estimation, arXiv
1506.02438. Rows of a minibatch are [n, ...]; of a recurrent policy a row is a sequence [L, ...].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rondel.algorithms import actor_critic, descent
from rondel.algorithms.actor_critic import Loss, Rows
from rondel.algorithms.card import Card
from rondel.algorithms.ranges import check_ranges
from rondel.errors import RondelError
from rondel.formatting import divisors, join_words
from rondel.memory.rollout import rollout
from rondel.nets.actor_critic import ActorCritic, make_networks
from rondel.ops.distributions import Distribution
from rondel.ops.optimisers import adam
from rondel.ops.statistics import masked_mean
from rondel.types import Algorithm, Array, EnvSpec, Network, Tree

CARD = Card(
    family="on-policy",
    paper="Proximal Policy Optimization Algorithms, arXiv 1707.06347",
    plan="actor*2 | learner",
    lanes=16,
)


@dataclass(frozen=True)
class Config:
    """The algorithm's fields."""

    rollout: int = 128  # steps that each lane takes in a round
    epochs: int = 8  # passes over a round's rows
    minibatches: int = 8  # parts of a pass, one gradient step each
    learning_rate: float = 1e-3  # Adam's step size
    anneal_steps: int | None = None  # environment steps over which the step size falls to 0
    discount: float = 0.99  # discount of a reward per step
    gae_lambda: float = 0.95  # 0: one-step advantages, 1: whole returns
    clip: float = 0.2  # range of the probability ratio, 1 ± clip, beyond which it gains nothing
    value_clip: float | None = None  # range in which a value may move; None: any
    value_cost: float = 0.5  # weight of the value loss
    entropy_cost: float = 0.0  # weight of the entropy bonus
    normalise_advantage: bool = True  # standardise advantages in each minibatch
    max_grad_norm: float = 0.5  # gradients are clipped to this norm
    target_kl: float | None = None  # skip a round's remaining updates beyond a KL of 1.5 times this
    log_std: float = 0.0  # initial log deviation of continuous actions, in units of -1..1
    hidden: tuple[int, ...] = (64, 64)  # widths of the hidden layers
    network: str = "auto"  # auto, mlp, nature, impala, minatar, board, or your own module:function
    memory: str = "none"  # recurrent cell: none, gru, lstm
    memory_size: int = 128  # width of the recurrent cell
    sequence: int = 16  # steps of a training sequence, with a recurrent cell

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.memory != "none" and self.rollout % self.sequence:
            raise RondelError(
                f"sequence must divide rollout={self.rollout}, got {self.sequence}. "
                f"Use {join_words(divisors(self.rollout), 'or')}."
            )


class State(NamedTuple):
    params: Tree
    opt_state: Tree
    steps: Array  # environment steps so far, no further than the annealing needs
    stopped: Array  # beyond target_kl: no further updates in this round


def clipped_surrogate(ratio: Array, advantage: Array, clip: float) -> Array:
    """The policy's objective: min(ρA, clip(ρ, 1-ε, 1+ε)A), equation 7."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def value_loss(value: Array, old_value: Array, target: Array, clip: float | None) -> Array:
    """Half the squared error; with a clip, the larger of it and that of the clipped value."""
    loss = 0.5 * (value - target) ** 2
    if clip is None:
        return loss
    near = old_value + jnp.clip(value - old_value, -clip, clip)
    return jnp.maximum(loss, 0.5 * (near - target) ** 2)


def absorb(config: Config, state: State, steps: Array) -> State:
    counted = descent.count_steps(config.anneal_steps, state, steps)
    return counted._replace(stopped=jnp.bool_(False))


def loss(
    config: Config,
    model: ActorCritic,
    dist: Distribution,
    params: Tree,
    weighed: tuple[Rows, Array],
) -> tuple[Array, dict[str, Array]]:
    """The clipped objective, value loss and entropy bonus; means over valid rows.

    `weighed` are rows and their advantages, perhaps standardised.
    """
    rows, advantage, out, values = actor_critic.judge(model, params, weighed)
    log_ratio = dist.log_prob(out, rows.action) - rows.log_prob
    ratio = jnp.exp(log_ratio)
    mean = partial(masked_mean, valid=rows.valid)
    policy_loss = -mean(clipped_surrogate(ratio, advantage, config.clip))
    target = rows.value + rows.advantage
    critic_loss = mean(value_loss(values, rows.value, target, config.value_clip))
    entropy = mean(dist.entropy(out))
    total = policy_loss + config.value_cost * critic_loss - config.entropy_cost * entropy
    return total, {
        "loss/policy": policy_loss,
        "loss/value": critic_loss,
        "entropy": entropy,
        "kl": mean(ratio - 1 - log_ratio),  # never negative, unlike -log_ratio
        "clipped": mean((jnp.abs(ratio - 1) > config.clip).astype(jnp.float32)),
    }


def gradient(
    normalise: bool, weighed_loss: Loss, chunk: int | None, params: Tree, rows: Rows, key: Array
) -> Tree:
    """The gradient of the loss, with the KL divergence for `update`."""
    grads, *rest, metrics = actor_critic.gradient(normalise, weighed_loss, chunk, params, rows, key)
    return (grads, metrics["kl"]), *rest, metrics


def update(
    config: Config,
    optimiser: optax.GradientTransformation,
    state: State,
    grads_and_kl: tuple[Tree, Array],
) -> State:
    """A gradient step, unless the policy has moved too far in this round."""
    grads, kl = grads_and_kl
    moved = descent.descend(config, optimiser, state, grads)
    if config.target_kl is None:
        return moved
    stopped = state.stopped | (kl > 1.5 * config.target_kl)
    new, old = (moved.params, moved.opt_state), (state.params, state.opt_state)
    params, opt_state = jax.tree.map(lambda n, o: jnp.where(stopped, o, n), new, old)
    return state._replace(params=params, opt_state=opt_state, stopped=stopped)


def make(config: Config, spec: EnvSpec, network: Network | None = None) -> Algorithm:
    """PPO for discrete or continuous actions; `network` is the user's own torso, if any."""
    model, dist = make_networks(config, spec, network)
    optimiser = adam(config.max_grad_norm, epsilon=1e-5)
    rows = config.discount, config.gae_lambda, config.sequence
    weighing = config.normalise_advantage, partial(loss, config, model, dist)

    def init(key: Array) -> State:
        params = model.init(key)
        return State(params, optimiser.init(params), jnp.int32(0), jnp.bool_(False))

    return Algorithm(
        init=init,
        acting=lambda state: state.params,
        learning=lambda state: state.params,
        absorb=partial(absorb, config),
        gradient=partial(gradient, *weighing, model.chunk),
        update=partial(update, config, optimiser),
        act=partial(actor_critic.act, model, dist),
        prepare=partial(actor_critic.prepare, *rows, model),
        carry=lambda lane: model.carry(lane.shape[0]),
        memory=rollout(config.epochs, config.minibatches, spec.observation, model.recurrent),
        rollout=config.rollout,
        max_lag=CARD.max_lag,
    )
