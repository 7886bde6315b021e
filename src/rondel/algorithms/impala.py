"""IMPALA: actors with old weights, and a learner that corrects for it by V-trace.

Espeholt et al., IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
Architectures, arXiv 1802.01561. The learner values a lane's whole round with its newest weights, so
a row of a batch is such a round: [T, ...], or [T + 1, ...] where the last observation belongs to
it. Adam replaces the paper's RMSProp.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rondel.algorithms import actor_critic, descent
from rondel.algorithms.actor_critic import Loss
from rondel.algorithms.card import Card
from rondel.algorithms.ranges import check_ranges
from rondel.memory.rollout import rollout
from rondel.nets.actor_critic import ActorCritic, make_networks, pi
from rondel.ops.distributions import Distribution
from rondel.ops.optimisers import adam
from rondel.ops.returns import VTrace, swap_time, vtrace
from rondel.ops.statistics import masked_mean
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
    """The algorithm's fields."""

    rollout: int = 32  # steps that each lane takes in a round
    epochs: int = 1  # passes over a round
    minibatches: int = 1  # parts of a pass, each of some lanes; one gradient step each
    learning_rate: float = 1e-3  # Adam's step size
    anneal_steps: int | None = None  # environment steps over which the step size falls to 0
    discount: float = 0.99  # discount of a reward per step
    trace_lambda: float = 1.0  # 0: one-step targets, 1: rewards up to the round's end
    clip_rho: float = 1.0  # bound of the importance weights: which policy is valued
    clip_c: float = 1.0  # bound where they reach back in time: how fast values converge
    value_cost: float = 0.5  # weight of the value loss
    entropy_cost: float = 0.01  # weight of the entropy bonus
    max_grad_norm: float = 0.5  # gradients are clipped to this norm
    log_std: float = 0.0  # initial log deviation of continuous actions, in units of -1..1
    hidden: tuple[int, ...] = (64, 64)  # widths of the hidden layers
    network: str = "auto"  # auto, mlp, nature, impala, minatar, board, or your own module:function
    memory: str = "none"  # recurrent cell: none, gru, lstm
    memory_size: int = 128  # width of the recurrent cell

    def __post_init__(self) -> None:
        check_ranges(self)


class Rounds(NamedTuple):
    """Items [b, 1, ...] for memory, batches [n, ...] from it."""

    obs: Tree  # [..., T + 1, ...]
    first: Array  # [..., T + 1]: where episodes begin
    action: Array  # [..., T, ...], as all below
    log_prob: Array  # of the action when it was taken
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array
    carry: Tree  # [...]: the recurrent state before the first row


class Judged(NamedTuple):
    """A policy and values of rounds, time first [T, n]."""

    dist_params: Array  # [T, n, ...]
    log_prob: Array  # of the action that was taken
    value: Array  # [T + 1, n]


def prepare(params: Tree, tr: Trajectory) -> tuple[Rounds, Array]:
    """The round as it is, for the learner to judge, and the number of steps."""
    del params
    ends = tr.terminated, tr.truncated, tr.valid
    rounds = Rounds(tr.obs, tr.first, tr.action, tr.extras, tr.reward, *ends, carry=())
    rounds = swap_time(rounds)._replace(carry=tr.carry)
    return jax.tree.map(lambda x: x[:, None], rounds), tr.valid.sum(0)


def time_first(rounds: Rounds) -> Rounds:
    """Rounds [n, T, ...] as [T, n, ...], except the carry."""
    return swap_time(rounds._replace(carry=()))._replace(carry=rounds.carry)


def judge(model: ActorCritic, dist: Distribution, params: Tree, rounds: Rounds) -> Judged:
    """Judge rounds, time first, by some parameters."""
    (out, value), _ = model.unroll(params, rounds.carry, rounds.obs, rounds.first)
    out = pi(params, out, rounds.obs)[:-1]
    return Judged(out, dist.log_prob(out, rounds.action), value)


def corrected(config: Config, judged: Judged, rounds: Rounds) -> VTrace:
    """V-trace targets and advantages by some judgement, without gradients."""
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
    mean = partial(masked_mean, valid=rounds.valid)
    policy_loss = -mean(traced.advantage * judged.log_prob)
    value_loss = mean(0.5 * (judged.value[:-1] - traced.target) ** 2)
    entropy = mean(dist.entropy(judged.dist_params))
    total = policy_loss + config.value_cost * value_loss - config.entropy_cost * entropy
    log_ratio = judged.log_prob - rounds.log_prob
    cut = jnp.log(config.clip_rho) + 1e-4  # without lag only rounding would exceed it
    return total, {
        "loss/policy": policy_loss,
        "loss/value": value_loss,
        "entropy": entropy,
        "kl": mean(jnp.exp(log_ratio) - 1 - log_ratio),  # distance to the actors' policy
        "clipped": mean((log_ratio > cut).astype(jnp.float32)),
    }


def gradient(
    rounds_loss: Loss, chunk: int | None, variables: Tree, rounds: Rounds, key: Array
) -> Tree:
    del key
    grads, metrics = actor_critic.grad_of(rounds_loss, chunk, variables, rounds, rounds.valid)
    return grads, rounds.valid.sum().astype(jnp.float32), (), metrics


def make(config: Config, spec: EnvSpec, network: Network | None = None) -> Algorithm:
    """IMPALA for discrete or continuous actions; `network` is the user's own torso, if any."""
    model, dist = make_networks(config, spec, network)
    rounds = None if model.chunk is None else max(1, model.chunk // (config.rollout + 1))
    optimiser = adam(config.max_grad_norm, epsilon=1e-5)

    return Algorithm(
        init=partial(descent.init, model, optimiser),
        acting=lambda state: state.params,
        learning=lambda state: state.params,
        absorb=partial(descent.count_steps, config.anneal_steps),
        gradient=partial(gradient, partial(loss, config, model, dist), rounds),
        update=partial(descent.descend, config, optimiser),
        act=partial(actor_critic.act, model, dist),
        prepare=prepare,
        carry=lambda lane: model.carry(lane.shape[0]),
        memory=rollout(config.epochs, config.minibatches),
        rollout=config.rollout,
        max_lag=CARD.max_lag,
    )
