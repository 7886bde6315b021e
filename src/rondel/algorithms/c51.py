"""Categorical DQN: the distribution of returns over 51 fixed values instead of their mean.

Bellemare et al., A Distributional Perspective on Reinforcement Learning, arXiv 1707.06887. It is
DQN with other defaults; `return_min` and `return_max` should enclose the task's discounted returns.
"""

from __future__ import annotations

from dataclasses import dataclass

from rondel.algorithms import dqn

CARD = dqn.CARD._replace(
    paper="A Distributional Perspective on Reinforcement Learning, arXiv 1707.06887"
)


@dataclass(frozen=True)
class Config(dqn.Config):
    """DQN's fields, with defaults for the paper's structure."""

    double: bool = False  # the online network chooses the next action, the target network values it
    returns: str = "categorical"  # model of returns: mean, categorical, quantile


make = dqn.make
