"""Actors that may be behind, and a learner that corrects for it: V-trace.

Espeholt et al., IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
Architectures, arXiv 1802.01561. The learner values a lane's whole round with its newest weights, so
a row of a batch is such a round: [T, ...], or [T + 1, ...] where the last observation belongs to
it. Adam stands for the paper's RMSProp.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rondel.algorithms import actor_critic
from rondel.algorithms.actor_critic import Loss, pi, turned
from rondel.algorithms.card import Card
from rondel.errors import at_least, from_zero_to_one
from rondel.memory.rollout import rollout
from rondel.nets.actor_critic import ActorCritic
from rondel.ops.distributions import Distribution
from rondel.ops.masks import masked_mean
from rondel.ops.returns import VTrace, vtrace
from rondel.types import Algorithm, Array, EnvSpec, Network, Trajectory, Tree

CARD = Card(
    family="on-policy",
    paper="IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner "
    "Architectures, arXiv 1802.01561",
    plan="actor*4 | learner",  # with a lag
    max_lag=None,
    lanes=32,
)


@dataclass(frozen=True)
class Config:
    """What can be set."""

    rollout: int = 32  # steps that each lane takes in a round
    epochs: int = 1  # passes over a round
    minibatches: int = 1  # pieces of a pass, each of some lanes; one gradient step each
    learning_rate: float = 1e-3  # Adam's step size
    anneal_steps: int | None = None  # environment steps over which the step size falls to 0
    discount: float = 0.99  # worth of a reward one step later
    trace_lambda: float = 1.0  # 0: one-step targets, 1: rewards up to the round's end
    clip_rho: float = 1.0  # importance weights are cut here: which policy is valued
    clip_c: float = 1.0  # and here where they reach back in time: how quickly
    value_cost: float = 0.5  # weight of the value loss
    entropy_cost: float = 0.01  # weight of the entropy bonus
    max_grad_norm: float = 0.5  # gradients beyond this norm are scaled down to it
    log_std: float = 0.0  # the log of the first deviation of continuous actions, in units of -1..1
    hidden: tuple[int, ...] = (64, 64)  # widths of the hidden layers
    network: str = "auto"  # auto, mlp, nature, impala, minatar, board, or your own module:function
    memory: str = "none"  # what it remembers an episode with: none, gru, lstm
    memory_size: int = 128  # width of that

    def __post_init__(self) -> None:
        at_least(1, rollout=self.rollout, epochs=self.epochs, minibatches=self.minibatches)
        at_least(1, hidden=min(self.hidden, default=1), anneal_steps=self.anneal_steps)
        at_least(1, memory_size=self.memory_size)
        at_least(0, learning_rate=self.learning_rate, max_grad_norm=self.max_grad_norm)
        at_least(0, clip_rho=self.clip_rho, clip_c=self.clip_c)
        from_zero_to_one(discount=self.discount, trace_lambda=self.trace_lambda)


class Rounds(NamedTuple):
    """Items [b, 1, ...] on their way to memory, batches [n, ...] when they come back."""

    obs: Tree  # [..., T + 1, ...]
    first: Array  # [..., T + 1]: where episodes begin
    action: Array  # [..., T, ...], as all below
    log_prob: Array  # of the action when it was taken
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array
    carry: Tree  # [...]: what was remembered before the first row


class Judged(NamedTuple):
    """What a policy and a value say of rounds, time first [T, n]."""

    dist_params: Array  # [T, n, ...]
    log_prob: Array  # of the action that was taken
    value: Array  # [T + 1, n]


def prepare(params: Tree, tr: Trajectory) -> tuple[Rounds, Array]:
    """The round as it is, and how many steps there were: the learner will judge it."""
    del params
    ends = tr.terminated, tr.truncated, tr.valid
    rounds = Rounds(tr.obs, tr.first, tr.action, tr.extras, tr.reward, *ends, carry=())
    rounds = turned(rounds)._replace(carry=tr.carry)
    return jax.tree.map(lambda x: x[:, None], rounds), tr.valid.sum(0)


def time_first(rounds: Rounds) -> Rounds:
    """From [n, T, ...] to [T, n, ...], all but the carry."""
    return turned(rounds._replace(carry=()))._replace(carry=rounds.carry)


def judge(model: ActorCritic, dist: Distribution, params: Tree, rounds: Rounds) -> Judged:
    """Rounds that are time first, as some parameters see them."""
    (out, value), _ = model.unroll(params, rounds.carry, rounds.obs, rounds.first)
    out = pi(params, out, rounds.obs)[:-1]
    return Judged(out, dist.log_prob(out, rounds.action), value)


def corrected(config: Config, judged: Judged, rounds: Rounds) -> VTrace:
    """Targets and advantages of whoever judged; nothing is differentiated through them."""
    ratio = jnp.exp(judged.log_prob - rounds.log_prob)
    ends = rounds.terminated, rounds.truncated, rounds.valid
    clips = config.trace_lambda, config.clip_rho, config.clip_c
    traced = vtrace(ratio, rounds.reward, judged.value, *ends, config.discount, *clips)
    return jax.lax.stop_gradient(traced)


def loss(
    config: Config, model: ActorCritic, dist: Distribution, params: Tree, rounds: Rounds
) -> tuple[Array, dict[str, Array]]:
    """-A log π(a|s) + ½ (V(s) - target)² - entropy, weighted; means over valid rows."""
    rounds = time_first(rounds)
    judged = judge(model, dist, params, rounds)
    traced = corrected(config, judged, rounds)

    def mean(x: Array) -> Array:
        return masked_mean(x, rounds.valid)

    policy_loss = -mean(traced.advantage * judged.log_prob)
    value_loss = mean(0.5 * (judged.value[:-1] - traced.target) ** 2)
    entropy = mean(dist.entropy(judged.dist_params))
    total = policy_loss + config.value_cost * value_loss - config.entropy_cost * entropy
    log_ratio = judged.log_prob - rounds.log_prob
    cut = jnp.log(config.clip_rho) + 1e-4  # else it counts rounding where there is no lag
    return total, {
        "loss/policy": policy_loss,
        "loss/value": value_loss,
        "entropy": entropy,
        "kl": mean(jnp.exp(log_ratio) - 1 - log_ratio),  # how far the actors' policy is behind
        "clipped": mean((log_ratio > cut).astype(jnp.float32)),
    }


def gradient(
    rounds_loss: Loss, chunk: int | None, variables: Tree, rounds: Rounds, key: Array
) -> Tree:
    del key
    grads, metrics = actor_critic.grad_of(rounds_loss, chunk, variables, rounds, rounds.valid)
    return grads, rounds.valid.sum().astype(jnp.float32), (), metrics


def make(config: Config, spec: EnvSpec, network: Network | None = None) -> Algorithm:
    """IMPALA for an environment with discrete or continuous actions.

    `network` is one of the user's own, from observations to features.
    """
    remembering = config.memory, config.memory_size
    model, dist = actor_critic.networks(config, spec, network, *remembering)
    chunk = chunk_for(config, spec, model, network)
    optimiser = actor_critic.adam(config.max_grad_norm)

    return Algorithm(
        init=partial(actor_critic.init, model.init, optimiser),
        acting=lambda state: state.params,
        learning=lambda state: state.params,
        absorb=partial(actor_critic.count_steps, config),
        gradient=partial(gradient, partial(loss, config, model, dist), chunk),
        update=partial(actor_critic.descend, config, optimiser),
        act=partial(actor_critic.act, model, dist),
        prepare=prepare,
        carry=lambda lane: model.carry(lane.shape[0]),
        memory=rollout(config.epochs, config.minibatches),
        rollout=config.rollout,
        max_lag=CARD.max_lag,
    )


def chunk_for(config: Config, spec: EnvSpec, model: ActorCritic, own: Network | None) -> int | None:
    """How many rounds at a time a gradient is made quickest on CPUs; None: all at once."""
    rows = actor_critic.chunk_for(config, spec, model, own)
    return None if rows is None else max(1, rows // (config.rollout + 1))
