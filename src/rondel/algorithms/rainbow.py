"""Rainbow: DQN with all of its improvements at once.

Hessel et al., Rainbow: Combining Improvements in Deep Reinforcement Learning, arXiv 1710.02298:
double, dueling, prioritised, 3-step, categorical returns, and noisy layers instead of random
actions. It is DQN with other defaults.
"""

from __future__ import annotations

from dataclasses import dataclass

from rondel.algorithms import dqn

CARD = dqn.CARD._replace(
    paper="Rainbow: Combining Improvements in Deep Reinforcement Learning, arXiv 1710.02298"
)


@dataclass(frozen=True)
class Config(dqn.Config):
    """What can be set: DQN's fields with the paper's choices."""

    n_step: int = 3  # rewards that are summed before bootstrapping
    dueling: bool = True  # separate streams for state value and advantages
    prioritised: bool = True  # draw by error instead of uniformly
    priority_exponent: float = 0.5  # 0: uniform, 1: proportional to the error
    epsilon_start: float = 0.0  # share of random actions at first
    epsilon_end: float = 0.0  # share of random actions in the end
    noise: float = 0.5  # scale of the noise in the last layers at first; 0: no noisy layers
    returns: str = "categorical"  # what is learned of returns: mean, categorical, quantile


make = dqn.make
