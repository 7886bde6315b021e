"""Categorical DQN: the distribution of returns over 51 fixed values instead of their mean.

Bellemare et al., A Distributional Perspective on Reinforcement Learning, arXiv 1707.06887. It is
DQN with other defaults; `return_min` and `return_max` should enclose the task's discounted returns.
"""

from __future__ import annotations

from dataclasses import dataclass

from rondel.algorithms import dqn

FAMILY, ACTIONS, RECURRENT = dqn.FAMILY, dqn.ACTIONS, dqn.RECURRENT
PAPER = "A Distributional Perspective on Reinforcement Learning, arXiv 1707.06887"
HOME, MAX_LAG, LANES = dqn.HOME, dqn.MAX_LAG, dqn.LANES


@dataclass(frozen=True)
class Config(dqn.Config):
    """What can be set: DQN's fields with the paper's choices."""

    double: bool = False  # choose the next action by the online network, value it by the target
    returns: str = "categorical"  # what is learned of returns: mean, categorical, quantile


make = dqn.make
