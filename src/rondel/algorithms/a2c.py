"""Advantage actor-critic: one gradient step from each round of experience.

Mnih et al., Asynchronous Methods for Deep Reinforcement Learning, arXiv 1602.01783, without the
asynchrony; `a3c` has it. With gae_lambda = 1 the advantages are the paper's: rewards up to the
round's end, then the value. Rows of a batch are [n, ...]; of a recurrent policy a row is a lane's
whole round [T, ...].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rondel.algorithms import actor_critic, descent
from rondel.algorithms.actor_critic import Rows
from rondel.algorithms.card import Card
from rondel.algorithms.ranges import check_ranges
from rondel.memory.rollout import rollout
from rondel.nets.actor_critic import ActorCritic, make_networks
from rondel.ops.distributions import Distribution
from rondel.ops.optimisers import adam
from rondel.ops.statistics import masked_mean
from rondel.types import Algorithm, Array, EnvSpec, Network, Tree

CARD = Card(
    family="on-policy",
    paper="Asynchronous Methods for Deep Reinforcement Learning, arXiv 1602.01783",
    plan="actor*4 | learner",
    lanes=32,
)


@dataclass(frozen=True)
class Config:
    """The algorithm's fields."""

    rollout: int = 16  # steps that each lane takes in a round
    learning_rate: float = 1e-3  # Adam's step size
    anneal_steps: int | None = None  # environment steps over which the step size falls to 0
    discount: float = 0.99  # discount of a reward per step
    gae_lambda: float = 1.0  # 0: one-step advantages, 1: rewards up to the round's end
    value_cost: float = 0.5  # weight of the value loss
    entropy_cost: float = 0.01  # weight of the entropy bonus
    normalise_advantage: bool = False  # standardise advantages in each round
    max_grad_norm: float = 0.5  # gradients are clipped to this norm
    log_std: float = 0.0  # initial log deviation of continuous actions, in units of -1..1
    hidden: tuple[int, ...] = (64, 64)  # widths of the hidden layers
    network: str = "auto"  # auto, mlp, nature, impala, minatar, board, or your own module:function
    memory: str = "none"  # recurrent cell: none, gru, lstm
    memory_size: int = 128  # width of the recurrent cell

    def __post_init__(self) -> None:
        check_ranges(self)


def loss(
    config: Config,
    model: ActorCritic,
    dist: Distribution,
    params: Tree,
    weighed: tuple[Rows, Array],
) -> tuple[Array, dict[str, Array]]:
    """-A log π(a|s) + ½ (V(s) - target)² - entropy, weighted; means over valid rows.

    `weighed` are rows and their advantages, perhaps standardised; targets use those of the rows.
    """
    rows, advantage, out, values = actor_critic.judge(model, params, weighed)
    mean = partial(masked_mean, valid=rows.valid)
    policy_loss = -mean(advantage * dist.log_prob(out, rows.action))
    value_loss = mean(0.5 * (values - (rows.value + rows.advantage)) ** 2)
    entropy = mean(dist.entropy(out))
    total = policy_loss + config.value_cost * value_loss - config.entropy_cost * entropy
    return total, {"loss/policy": policy_loss, "loss/value": value_loss, "entropy": entropy}


def make(config: Config, spec: EnvSpec, network: Network | None = None) -> Algorithm:
    """A2C for discrete or continuous actions; `network` is the user's own torso, if any."""
    model, dist = make_networks(config, spec, network)
    optimiser = adam(config.max_grad_norm, epsilon=1e-5)
    rows = config.discount, config.gae_lambda, config.rollout
    weighing = config.normalise_advantage, partial(loss, config, model, dist)

    return Algorithm(
        init=partial(descent.init, model, optimiser),
        acting=lambda state: state.params,
        learning=lambda state: state.params,
        absorb=partial(descent.count_steps, config.anneal_steps),
        gradient=partial(actor_critic.gradient, *weighing, model.chunk),
        update=partial(descent.descend, config, optimiser),
        act=partial(actor_critic.act, model, dist),
        prepare=partial(actor_critic.prepare, *rows, model),
        carry=lambda lane: model.carry(lane.shape[0]),
        memory=rollout(1, 1, spec.observation, model.recurrent),
        rollout=config.rollout,
        max_lag=CARD.max_lag,
    )
