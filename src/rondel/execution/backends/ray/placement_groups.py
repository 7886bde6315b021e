"""Room on the nodes of a cluster for a range of copies: each has its own, as there is some.

Ray is asked for one placement group a copy. It makes a group as soon as there is room, makes it
again elsewhere when its node is lost, and until then it waits, for as long as that takes.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.util.placement_group import (
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rondel.execution.backends.ray.resources import Bundle

_EVERY = 1.0  # seconds between two looks at what there is
_MOVING = 3.0  # seconds in which Ray finds other room, if there is any


class PlacementGroups:
    """Where the copies of a range may run."""

    def __init__(self, bundles: Sequence[Bundle]) -> None:
        self.groups = [placement_group([bundle]) if bundle else None for bundle in bundles]
        self._open: frozenset[int] = frozenset()
        self._looked = 0.0

    def open(self, now: bool = False) -> frozenset[int]:
        """The copies that there is room for, as of a second ago, or of `now`.

        Of now means once Ray has moved what it can, after a node was lost.
        """
        end = time.monotonic() + _MOVING
        while now or time.monotonic() - self._looked > _EVERY:
            table = placement_group_table()
            states = [
                "CREATED" if group is None else table.get(group.id.hex(), {}).get("state")
                for group in self.groups
            ]
            self._open = frozenset(i for i, state in enumerate(states) if state == "CREATED")
            self._looked = time.monotonic()
            if "RESCHEDULING" not in states or not now or self._looked > end:
                break
            time.sleep(0.1)
        return self._open

    def strategy(self, copy: int) -> Any:
        """How an actor is put into a copy's room."""
        group = self.groups[copy]
        if group is None:
            return "DEFAULT"
        return PlacementGroupSchedulingStrategy(group, 0, placement_group_capture_child_tasks=False)

    def close(self) -> None:
        """Nothing is asked for any more."""
        groups, self.groups = self.groups, []
        for group in groups:
            if group is not None and ray.is_initialized():
                remove_placement_group(group)
