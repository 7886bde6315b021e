"""REINFORCE: the policy gradient by whole returns, with or without a baseline.

Williams, Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning,
Machine Learning 8 (1992); the baseline is the value of Sutton et al., Policy Gradient Methods for
Reinforcement Learning with Function Approximation (1999).

A return is known once its episode has ended. Lanes never wait for each other's episodes: all rounds
have one length and see the rows before them, and the steps of an episode become rows of a batch,
[n, ...], in the round in which it ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rondel.algorithms import actor_critic, descent
from rondel.algorithms.actor_critic import Loss
from rondel.algorithms.card import Card
from rondel.algorithms.descent import State
from rondel.algorithms.ranges import check_ranges
from rondel.memory.rollout import rollout
from rondel.nets.actor_critic import ActorCritic, make_networks, pi
from rondel.ops.distributions import Distribution
from rondel.ops.optimisers import adam
from rondel.ops.returns import returns_to_go, swap_time
from rondel.ops.statistics import masked_mean, standardise
from rondel.types import Algorithm, Array, EnvSpec, Network, Trajectory, Tree

CARD = Card(
    family="on-policy",
    paper="Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement "
    "Learning, Machine Learning 8 (1992)",
    plan="actor*4 | learner",
    lanes=32,
)


@dataclass(frozen=True)
class Config:
    """The algorithm's fields."""

    rollout: int = 128  # steps that each lane takes in a round
    longest: int = 500  # most steps of an episode to learn from; of a longer one, the last
    baseline: bool = True  # subtract a learned value from the return
    learning_rate: float = 2e-3  # Adam's step size
    anneal_steps: int | None = None  # environment steps over which the step size falls to 0
    discount: float = 0.99  # discount of a reward per step
    value_cost: float = 0.5  # weight of the baseline's loss
    entropy_cost: float = 0.0  # weight of the entropy bonus
    normalise_advantage: bool = True  # standardise advantages in each round
    max_grad_norm: float = 0.5  # gradients are clipped to this norm
    log_std: float = 0.0  # initial log deviation of continuous actions, in units of -1..1
    hidden: tuple[int, ...] = (64, 64)  # widths of the hidden layers
    network: str = "auto"  # auto, mlp, nature, impala, minatar, board, or your own module:function

    def __post_init__(self) -> None:
        check_ranges(self)


class Rows(NamedTuple):
    """Items [b, longest - 1 + T, ...] for memory, batches [n, ...] from it."""

    obs: Tree
    action: Array
    return_: Array  # from here to the episode's end
    valid: Array  # the episode ended in this round


def prepare(config: Config, model: ActorCritic, params: Tree, tr: Trajectory) -> tuple[Rows, Array]:
    """All steps of the episodes that ended in the new rows, and the number of new steps."""
    value = None
    if config.baseline:
        (_, value), _ = model.unroll(params, (), tr.obs, tr.first)
    ends = tr.terminated, tr.truncated, tr.valid
    return_, end = returns_to_go(tr.reward, value, *ends, config.discount)
    before = config.longest - 1
    ended = tr.valid & (end >= before) & (end < before + config.rollout)
    obs = jax.tree.map(lambda x: x[:-1], tr.obs)
    return swap_time(Rows(obs, tr.action, return_, ended)), tr.valid[before:].sum(0)


def loss(
    config: Config,
    model: ActorCritic,
    dist: Distribution,
    params: Tree,
    weighed: tuple[Rows, Array],
) -> tuple[Array, dict[str, Array]]:
    """-(G - b) log π(a|s) + ½ (V(s) - G)² - entropy, weighted; means over valid rows.

    `weighed` are rows and their advantages.
    """
    rows, advantage = weighed
    (out, values), _ = model.unroll(params, (), rows.obs, None)
    out = pi(params, out, rows.obs)
    mean = partial(masked_mean, valid=rows.valid)
    policy_loss = -mean(advantage * dist.log_prob(out, rows.action))
    entropy = mean(dist.entropy(out))
    total = policy_loss - config.entropy_cost * entropy
    metrics = {"loss/policy": policy_loss, "entropy": entropy}
    if config.baseline:
        metrics["loss/value"] = mean(0.5 * (values - rows.return_) ** 2)
        total = total + config.value_cost * metrics["loss/value"]
    return total, metrics


def gradient(
    config: Config,
    model: ActorCritic,
    weighed_loss: Loss,
    chunk: int | None,
    params: Tree,
    rows: Rows,
    key: Array,
) -> Tree:
    del key
    advantage = rows.return_
    if config.baseline:
        (_, value), _ = model.unroll(params, (), rows.obs, None)
        advantage = advantage - value
    if config.normalise_advantage:
        advantage = standardise(advantage, rows.valid)
    weighed = rows, advantage
    grads, metrics = actor_critic.grad_of(weighed_loss, chunk, params, weighed, rows.valid)
    count = rows.valid.sum().astype(jnp.float32)
    return (grads, jnp.minimum(count, 1.0)), count, (), metrics


def update(
    config: Config,
    optimiser: optax.GradientTransformation,
    state: State,
    grads_if_any: tuple[Tree, Array],
) -> State:
    """A gradient step, unless no episode ended in the round: Adam would move without gradients."""
    grads, any_ = grads_if_any
    after = descent.descend(config, optimiser, state, grads)
    return jax.tree.map(lambda new, old: jnp.where(any_ > 0.0, new, old), after, state)


def make(config: Config, spec: EnvSpec, network: Network | None = None) -> Algorithm:
    """REINFORCE for discrete or continuous actions; `network` is the user's own torso, if any."""
    model, dist = make_networks(config, spec, network)
    optimiser = adam(config.max_grad_norm, epsilon=1e-5)
    weighed_loss = partial(loss, config, model, dist)

    return Algorithm(
        init=partial(descent.init, model, optimiser),
        acting=lambda state: state.params,
        learning=lambda state: state.params,
        absorb=partial(descent.count_steps, config.anneal_steps),
        gradient=partial(gradient, config, model, weighed_loss, model.chunk),
        update=partial(update, config, optimiser),
        act=partial(actor_critic.act, model, dist),
        prepare=partial(prepare, config, model),
        memory=rollout(1, 1, spec.observation),
        rollout=config.rollout,
        overlap=config.longest - 1,
        max_lag=CARD.max_lag,
    )
