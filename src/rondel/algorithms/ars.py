"""Augmented random search: evolution strategies with linear policies and plain steps.

Mania et al., Simple random search provides a competitive approach to reinforcement learning, arXiv
1803.07055. This is `es` with the paper's defaults. V2 standardises observations, V1 does not; V1-t
and V2-t have `top` (the paper's b) below the number of pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

from rondel.algorithms import es

CARD = es.CARD._replace(
    paper="Simple random search provides a competitive approach to RL, arXiv 1803.07055"
)

make = es.make


@dataclass(frozen=True)
class Config(es.Config):
    """The algorithm's fields."""

    rollout: int = 1000  # steps that each lane takes in a round; longer episodes are cut there
    sigma: float = 0.03  # deviation of the noise on parameters, the paper's ν
    learning_rate: float = 0.02  # step size
    optimiser: str = "sgd"  # adam or sgd
    weight_decay: float = 0.0  # pull of parameters towards 0, a part of the gradient
    shaping: str = "returns"  # weights of pairs: by ranks, or by returns over their deviation
    standardise: bool = True  # standardise observations by running statistics: V2; else V1
    hidden: tuple[int, ...] = ()  # widths of the hidden layers; none: a linear policy
