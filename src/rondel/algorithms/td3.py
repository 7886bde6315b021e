"""Twin delayed deep deterministic policy gradients: DDPG with three remedies for its optimism.

Fujimoto et al., Addressing Function Approximation Error in Actor-Critic Methods, arXiv 1802.09477:
the lower of two critics counts, the policy moves every other step, targets take noisy actions.
"""

from __future__ import annotations

from dataclasses import dataclass

from rondel.algorithms import ddpg

CARD = ddpg.CARD._replace(
    paper="Addressing Function Approximation Error in Actor-Critic Methods, arXiv 1802.09477"
)


@dataclass(frozen=True)
class Config(ddpg.Config):
    """The algorithm's fields."""

    critics: int = 2  # number of critics; the lowest of their values counts
    policy_every: int = 2  # gradient steps of the critics per step of the policy and the targets
    target_noise: float = 0.2  # deviation of the noise on the actions of targets


make = ddpg.make
