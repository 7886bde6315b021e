"""Asynchronous advantage actor-critic: A2C whose actors may be behind, with nothing to correct it.

Mnih et al., Asynchronous Methods for Deep Reinforcement Learning, arXiv 1602.01783. Each of its
actors makes its own gradients, and one place applies them all: that is the plan, not this file.
(In the paper a gradient is taken with the weights that acted; here with the newest.)
"""

from __future__ import annotations

from dataclasses import dataclass

from rondel.algorithms import a2c
from rondel.types import Algorithm, EnvSpec, Network

CARD = a2c.CARD._replace(
    plan="actor+memory+gradient*4 | update",
    max_lag=16,  # a bound, not a promise: nothing corrects for it
)


@dataclass(frozen=True)
class Config(a2c.Config):
    """What can be set."""


def make(config: Config, spec: EnvSpec, network: Network | None = None) -> Algorithm:
    """A2C that takes weights which are behind.

    `network` is one of the user's own, from observations to features.
    """
    return a2c.make(config, spec, network)._replace(max_lag=CARD.max_lag)
