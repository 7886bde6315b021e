"""Ape-X DDPG: many lanes with a noise each, and a prioritised replay.

Horgan et al., Distributed Prioritized Experience Replay, arXiv 1803.00933. The plan distributes it;
this module has the paper's n-step returns, priorities and ladder of exploration.
"""

from __future__ import annotations

from dataclasses import dataclass

from rondel.algorithms import ddpg

CARD = ddpg.CARD._replace(
    paper="Distributed Prioritized Experience Replay, arXiv 1803.00933",
    plan="actor*4 | memory*2 | gradient+update",
    lanes=32,
)


@dataclass(frozen=True)
class Config(ddpg.Config):
    """The algorithm's fields."""

    n_step: int = 5  # rewards summed before bootstrapping
    noise: float = 0.4  # deviation of the noise on actions
    ladder: float = 7.0  # α: lane i of N has noise ** (1 + α i / (N - 1)); 0: one deviation for all
    prioritised: bool = True  # draw by TD error instead of uniformly


make = ddpg.make
