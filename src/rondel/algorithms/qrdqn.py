"""DQN by quantile regression: quantiles of the return instead of its mean, wherever they lie.

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
    """What can be set: DQN's fields with the paper's choices."""

    double: bool = False  # choose the next action by the online network, value it by the target
    returns: str = "quantile"  # what is learned of returns: mean, categorical, quantile


make = dqn.make
