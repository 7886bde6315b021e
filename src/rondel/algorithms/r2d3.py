"""R2D3: R2D2 that also draws from a second memory, of demonstrations.

Gülçehre et al., Making Efficient Use of Demonstrations to Solve Hard Exploration Problems, arXiv
1909.01387. Demonstrations are episodes of any policy; `make` takes them as one lane's rows. Their
recurrent states are unknown: sequences within them begin as episodes do, and the burn-in corrects
that in part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from rondel.algorithms import r2d2
from rondel.errors import RondelError
from rondel.memory.demonstrations import with_demonstrations
from rondel.memory.sequences import Stretch
from rondel.types import Algorithm, EnvSpec, Memory, Network, Trajectory, Tree

CARD = r2d2.CARD._replace(
    paper="Making Efficient Use of Demonstrations to Solve Hard Exploration Problems, arXiv "
    "1909.01387"
)


@dataclass(frozen=True)
class Config(r2d2.Config):
    """R2D2's fields, and those of demonstrations."""

    demonstrations: str = ""  # file of recorded episodes, from `rondel.record`
    demo_ratio: float = 1 / 256  # share of a batch that comes from demonstrations


def layout(first: np.ndarray, stride: int, before: int, after: int) -> np.ndarray:
    """Which row goes to each place; -1: none.

    Each episode begins where a sequence begins. At least `before` places precede the first, and
    `after` follow the last.
    """
    ends = [*(1 + np.flatnonzero(first[1:])), len(first)]
    begins = [0, *ends[:-1]]
    places = [np.full(-(-before // stride) * stride, -1)]
    for begin, end in zip(begins, ends, strict=True):
        gap = -(end - begin) % stride
        places += [np.arange(begin, end), np.full(gap, -1)]
    return np.concatenate([*places, np.full(after, -1)])


def stretch_of(config: Config, algorithm: Algorithm, shown: Trajectory) -> Stretch:
    """Demonstrations as items of one lane, with equal priorities."""
    after = config.length - config.stride  # so that a sequence can begin anywhere in them
    place = layout(np.asarray(shown.first)[:-1, 0], config.stride, config.burn_in, after)
    there = place >= 0
    obs = jax.tree.map(lambda x: x[:-1], shown.obs)
    ends = shown.terminated, shown.truncated, shown.valid
    rows = r2d2.Rows(obs, shown.first[:-1], shown.action, shown.reward, *ends)
    rows = jax.tree.map(lambda x: np.swapaxes(x[place], 0, 1), rows)
    rows = rows._replace(valid=rows.valid & there[None], first=rows.first & there[None])
    begins = len(place) // config.stride
    recalled = algorithm.carry(jnp.zeros(begins, jnp.int32)).recalled
    priority: Tree = np.ones((1, begins), np.float32) if config.prioritised else None
    return Stretch(rows, jax.tree.map(lambda x: np.asarray(x)[None], recalled), priority)


def memory_for(config: Config, spec: EnvSpec, algorithm: Algorithm, shown: Trajectory) -> Memory:
    def of_size(capacity: int) -> Memory:
        return r2d2.memory_for(replace(config, capacity=capacity), spec)

    items = stretch_of(config, algorithm, shown)
    rows = items.rows.valid.shape[1]
    rounds, room = rows // config.stride, rows + config.stride
    return with_demonstrations(of_size, config.capacity, items, rounds, room, config.demo_ratio)


def make(
    config: Config,
    spec: EnvSpec,
    network: Network | None = None,
    demonstrations: Trajectory | None = None,
) -> Algorithm:
    """R2D3 for discrete actions; `network` is the user's own torso, if any.

    `demonstrations` are whole episodes, one after the other, in one lane.
    """
    if demonstrations is None:
        raise RondelError(
            "r2d3 needs demonstrations: --demonstrations FILE (`rondel record` writes one)."
        )
    algorithm = r2d2.make(config, spec, network)
    return algorithm._replace(memory=memory_for(config, spec, algorithm, demonstrations))
