"""Ape-X: many lanes with an epsilon each, and a prioritised replay in shards.

Horgan et al., Distributed Prioritized Experience Replay, arXiv 1803.00933. It is DQN with other
defaults. The replay ratio is `updates` * `batch` rows drawn for `rollout` * lanes rows added.
"""

from __future__ import annotations

from dataclasses import dataclass

from rondel.algorithms import dqn

CARD = dqn.CARD._replace(
    paper="Distributed Prioritized Experience Replay, arXiv 1803.00933",
    plan="actor*4 | memory*2 | gradient+update",  # with a lag; `--plan apex` has one of 2, and free
    lanes=32,
)


@dataclass(frozen=True)
class Config(dqn.Config):
    """DQN's fields, with defaults for the paper's structure."""

    n_step: int = 3  # rewards summed before bootstrapping
    dueling: bool = True  # separate streams for state value and advantages
    prioritised: bool = True  # draw by error instead of uniformly
    epsilon_start: float = 0.4  # initial share of random actions
    epsilon_end: float = 0.4  # final share of random actions
    ladder: float = 7.0  # α: lane i of N has epsilon ** (1 + α i / (N - 1)); 0: one epsilon for all
    max_grad_norm: float = 40.0  # gradients are clipped to this norm


make = dqn.make
