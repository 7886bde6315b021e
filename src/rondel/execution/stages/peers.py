"""What copies that learn together exchange, in one program or by messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from rondel.execution.stages.task import stage_boundary
from rondel.types import Array, Tree

Part: TypeAlias = tuple[Any, int]  # which of how many copies
WHOLE: Part = (0, 1)


class GradientContribution(NamedTuple):
    """What a copy of the gradient stage sends to update."""

    grads: Tree
    weight: Array  # (): how much these count among the copies'
    metrics: dict[str, Array]


class Peers(NamedTuple):
    """The exchange between copies that learn in one program; by default there are no others."""

    memory: Part = WHOLE  # which shard of it is here
    gradient: Part = WHOLE  # which copy of it this is
    mine: Callable[[Tree], Tree] = lambda batch: batch  # its rows of what was drawn here
    lanes: Callable[[Tree], Tree] = lambda tree: tree  # [b, ...] of all copies, as [B, ...]
    # own contribution, own feedback -> contributions of all, feedback on all that was drawn here
    exchange: Callable[
        [GradientContribution, Tree], tuple[Sequence[GradientContribution], Tree]
    ] = lambda contribution, feedback: ([contribution], feedback)


ALONE = Peers()


def average(contributions: Sequence[GradientContribution]) -> tuple[Tree, dict[str, Array]]:
    """The mean of several copies' gradients and metrics by weight, summed in copy order."""
    if len(contributions) == 1:
        return contributions[0].grads, contributions[0].metrics
    weights = [c.weight for c in contributions]
    total = jnp.maximum(sum(weights[1:], weights[0]), 1e-12)

    def mean(*xs: Array) -> Array:
        terms = [
            stage_boundary(x * (w / total).astype(x.dtype))
            for x, w in zip(xs, weights, strict=True)
        ]
        return sum(terms[1:], terms[0])

    pairs = [(c.grads, c.metrics) for c in contributions]
    means: tuple[Tree, dict[str, Array]] = jax.tree.map(mean, *pairs)
    return means
