"""Which copy has which lanes.

Copies of the policy split the lanes in order. A policy copy that is cut off from its environments
takes its lanes in two phases where they divide, so that the environments step one half while it
acts for the other. A group is the part of a phase that one env copy has; lanes act in the same
blocks whatever the split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rondel.plan.plan import Plan


class Group(NamedTuple):
    """Lanes that step together."""

    env: int  # the copy of the env stage that has them
    first_lane: int
    lanes: int


class LaneShare(NamedTuple):
    """The part of several copies' joined results that one copy takes: the `nth` of `of`."""

    nth: int
    of: int


EVERYTHING = LaneShare(0, 1)


def phases(plan: Plan, lanes: int, block: int, policy_copy: int) -> tuple[tuple[Group, ...], ...]:
    """The groups that a policy copy drives, phase by phase, in the order of their lanes."""
    envs, policies = plan.copies("env"), plan.copies("policy")
    mine = lanes // policies
    together = plan.piece_of("env") == plan.piece_of("policy")
    each = max(1, envs // policies)  # env copies of this policy copy
    halves = not together and mine % (2 * block) == 0 and mine % (2 * each) == 0
    n = 2 if halves else 1
    size = mine // (n * each)
    begin = policy_copy * mine
    return tuple(
        tuple(
            Group(
                (policy_copy * each + i) * envs // max(envs, policies),
                begin + (phase * each + i) * size,
                size,
            )
            for i in range(each)
        )
        for phase in range(n)
    )


def lanes_of(phase: Sequence[Group]) -> np.ndarray:
    """The lanes of a phase's groups, which are adjacent."""
    first, last = phase[0].first_lane, phase[-1].first_lane + phase[-1].lanes
    return np.arange(first, last, dtype=np.int32)


def groups(plan: Plan, lanes: int, block: int, env_copy: int) -> tuple[Group, ...]:
    """The groups that an env copy has, whichever policy copies drive them."""
    every = (
        group
        for copy in range(plan.copies("policy"))
        for phase in phases(plan, lanes, block, copy)
        for group in phase
    )
    return tuple(group for group in every if group.env == env_copy)


def route(made: Sequence[Any], copies: int) -> list[tuple[LaneShare, list[Any]]]:
    """For each of `copies` takers: its share, and the makers' results that it is a share of."""
    makers = len(made)
    if makers >= copies:
        each = makers // copies
        return [(EVERYTHING, list(made[i * each : (i + 1) * each])) for i in range(copies)]
    each = copies // makers
    return [(LaneShare(i % each, each), [made[i // each]]) for i in range(copies)]
