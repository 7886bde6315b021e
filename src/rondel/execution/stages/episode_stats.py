"""Finished episodes: in the order round, step, lane, whatever the plan."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from rondel.execution.stages.rows import Outcome
from rondel.types import WINDOW, Array


class RecentEpisodes(NamedTuple):
    """The last 100 finished episodes, as rings that `ended` points into."""

    returns: Array  # [100]
    lengths: Array  # [100]
    ended: Array  # () int32: episodes so far


def no_episodes() -> RecentEpisodes:
    """Before the first episode has ended."""
    return RecentEpisodes(jnp.zeros(WINDOW), jnp.zeros(WINDOW, jnp.int32), jnp.int32(0))


def push(recent: RecentEpisodes, outcome: Outcome) -> RecentEpisodes:
    """Take in the episodes that ended in a round; outcomes are [b, T]."""
    done, returns, lengths = (
        x.T.reshape(-1) for x in (outcome.done, outcome.episode_return, outcome.episode_length)
    )
    nth = jnp.cumsum(done)
    newest = done & (nth > nth[-1] - WINDOW)  # each slot is written once
    slot = jnp.where(newest, (recent.ended + nth - 1) % WINDOW, WINDOW)
    return RecentEpisodes(
        recent.returns.at[slot].set(returns, mode="drop"),
        recent.lengths.at[slot].set(lengths, mode="drop"),
        recent.ended + nth[-1].astype(jnp.int32),
    )


def mean_return(recent: RecentEpisodes) -> Array:
    """Mean over the window; -inf until it is full, so that no lucky start passes for success."""
    return jnp.where(recent.ended >= WINDOW, jnp.mean(recent.returns, -1), -jnp.inf)


def means(recent: RecentEpisodes) -> tuple[Array, Array]:
    """Mean return and length of the episodes in the window; NaN before the first."""
    n = jnp.minimum(recent.ended, WINDOW)
    held = jnp.arange(WINDOW) < n
    return (
        jnp.where(held, recent.returns, 0.0).sum() / n,
        jnp.where(held, recent.lengths, 0).sum() / n,
    )


def finished(outcome: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """Returns and lengths of the episodes that ended in a round, in order."""
    done = np.asarray(outcome.done).T
    return np.asarray(outcome.episode_return).T[done], np.asarray(outcome.episode_length).T[done]
