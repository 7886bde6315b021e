"""Gorila: DQN in pieces, with actors, a sharded replay, learners and a parameter server.

Nair et al., Massively Parallel Methods for Deep Reinforcement Learning, arXiv 1507.04296. It
computes the DQN of its time; the rest is its plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from rondel.algorithms import dqn

CARD = dqn.CARD._replace(
    paper="Massively Parallel Methods for Deep Reinforcement Learning, arXiv 1507.04296",
    plan="actor*4 | memory*2 | gradient*2 | update",  # and free, with a lag: `--plan gorila`
    lanes=32,
)


@dataclass(frozen=True)
class Config(dqn.Config):
    """DQN's fields, with defaults for the paper's structure."""

    double: bool = False  # the online network chooses the next action, the target network values it


make = dqn.make
