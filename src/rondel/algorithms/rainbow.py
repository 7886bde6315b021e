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
    """DQN's fields, with defaults for the paper's structure."""

    n_step: int = 3  # rewards summed before bootstrapping
    dueling: bool = True  # separate streams for state value and advantages
    prioritised: bool = True  # draw by error instead of uniformly
    priority_exponent: float = 0.5  # 0: uniform, 1: proportional to the error
    epsilon_start: float = 0.0  # initial share of random actions
    epsilon_end: float = 0.0  # final share of random actions
    noise: float = 0.5  # initial scale of noise in the last layers; 0: no noisy layers
    returns: str = "categorical"  # model of returns: mean, categorical, quantile


make = dqn.make
