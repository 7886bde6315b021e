"""Asynchronous advantage actor-critic: A2C with acting weights that may be old, uncorrected.

Mnih et al., Asynchronous Methods for Deep Reinforcement Learning, arXiv 1602.01783. Each actor
computes its own gradients and one copy applies them all; that is the plan, not this file. (The
paper takes a gradient with the weights that acted; here it is taken with the newest.)
"""

from __future__ import annotations

from dataclasses import dataclass

from rondel.algorithms import a2c
from rondel.types import Algorithm, EnvSpec, Network

CARD = a2c.CARD._replace(
    plan="actor+memory+gradient*4 | update",
    max_lag=16,  # nothing corrects for it
)


@dataclass(frozen=True)
class Config(a2c.Config):
    """The algorithm's fields."""


def make(config: Config, spec: EnvSpec, network: Network | None = None) -> Algorithm:
    """A2C that tolerates a lag; `network` is the user's own torso, if any."""
    return a2c.make(config, spec, network)._replace(max_lag=CARD.max_lag)
