"""DQN by quantile regression: quantiles of the return instead of its mean.

Dabney et al., Distributional Reinforcement Learning with Quantile Regression, arXiv 1710.10044. It
is DQN with other defaults; the paper has 200 quantiles.
"""

from __future__ import annotations

from dataclasses import dataclass

from rondel.algorithms import dqn

CARD = dqn.CARD._replace(
    paper="Distributional Reinforcement Learning with Quantile Regression, arXiv 1710.10044"
)


@dataclass(frozen=True)
class Config(dqn.Config):
    """DQN's fields, with defaults for the paper's structure."""

    double: bool = False  # the online network chooses the next action, the target network values it
    returns: str = "quantile"  # model of returns: mean, categorical, quantile


make = dqn.make
