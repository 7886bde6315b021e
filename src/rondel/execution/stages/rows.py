"""What steps leave behind: for the algorithm, for the next round and for the driver."""

from __future__ import annotations

from typing import NamedTuple

from rondel.types import Array, Step, Tree


class Row(NamedTuple):
    """What is recorded of one step [b, ...]."""

    obs: Tree
    first: Array
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    valid: Array
    extras: Tree
    carry: Tree  # before acting


class Lanes(NamedTuple):
    """What the policy stage keeps of its lanes between rounds."""

    carry: Tree  # [b, ...]
    tail: Row  # [b, O, ...]: the last rows of the round before


class Outcome(NamedTuple):
    """What a step reports besides the next observation [b, T]."""

    done: Array
    episode_return: Array
    episode_length: Array
    valid: Array


class RolloutResult(NamedTuple):
    """A round's experience [b, ...]."""

    items: Tree
    summary: Tree
    outcome: Outcome


def row_of(before: Step, action: Array, extras: Tree, carry: Tree, after: Step) -> Row:
    """The row of the step from `before` to `after`."""
    return Row(
        before.obs,
        before.first,
        action,
        after.reward,
        after.terminated,
        after.truncated,
        ~after.first,
        extras,
        carry,
    )


def outcome_of(after: Step) -> Outcome:
    """What the driver needs of a step, to count it."""
    done = (after.terminated | after.truncated) & (after.episode_length > 0)
    return Outcome(done, after.episode_return, after.episode_length, ~after.first)
