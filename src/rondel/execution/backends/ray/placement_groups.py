"""Resources of a cluster, reserved before the copies start.

Copies outside a range share one placement group, which Ray makes whole or not at all. Each copy of
a range has a group of its own: Ray makes it once a node has room, makes it again elsewhere when
that node is lost, and until then it waits, for as long as that takes.
"""

# mypy: disallow-untyped-calls=False
from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rondel.errors import RondelError
from rondel.execution.backends.protocol import Unresponsive
from rondel.execution.backends.ray.resources import Bundle, amounts, missing, total
from rondel.plan.plan import Plan

_EVERY = 1.0  # seconds between two looks at the groups
_MOVING = 3.0  # seconds in which Ray finds another node for a group, if there is one


class Reservation:
    """The placement groups of a run."""

    def __init__(self, plan: Plan, bundles: list[list[Bundle]], seconds: float) -> None:
        """Reserve resources for every copy, and for the least copies of a range, or raise."""
        self._plan, self._bundles = plan, bundles
        least = [piece[: plan.pieces[i].least] for i, piece in enumerate(bundles)]
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if lack := missing(plan, least, nodes):
            raise RondelError(lack)
        ranged = [i for i, piece in enumerate(plan.pieces) if piece.least is not None]
        fixed = [b for i, piece in enumerate(bundles) if i not in ranged for b in piece if b]
        self._group = placement_group(fixed, strategy="PACK") if fixed else None
        self._taken = 0  # bundles of the common group that a copy has
        self._own: list[Any] = []  # the group of each copy of the range; None if it asks for 0
        self._open: frozenset[int] = frozenset()
        self._looked = 0.0
        few = sum(len(least[i]) for i in ranged)
        end = time.monotonic() + seconds
        while not self._is_there([b for i in ranged for b in bundles[i]], few):
            if time.monotonic() > end:
                self.close()
                raise Unresponsive(_busy(plan, least, seconds))

    def _is_there(self, ranged: Sequence[Bundle], few: int) -> bool:
        """Wait up to a second. Copies of a range come last, as they could take all there is."""
        if self._group is not None and not self._group.wait(1.0):  # short, so Ctrl-C is heard
            return False
        if ranged and not self._own:
            self._own = [placement_group([bundle]) if bundle else None for bundle in ranged]
        if not ranged or len(self.open(now=True)) >= few:
            return True
        time.sleep(0.1)
        return False

    def open(self, now: bool = False) -> frozenset[int]:
        """The copies of the range that have room, as of a second ago.

        With `now`, as of now: once Ray has moved what it can after a node was lost.
        """
        end = time.monotonic() + _MOVING
        while now or time.monotonic() - self._looked > _EVERY:
            table = placement_group_table()
            states = [
                "CREATED" if group is None else table.get(group.id.hex(), {}).get("state")
                for group in self._own
            ]
            self._open = frozenset(i for i, state in enumerate(states) if state == "CREATED")
            self._looked = time.monotonic()
            if "RESCHEDULING" not in states or not now or self._looked > end:
                break
            time.sleep(0.1)
        return self._open

    def options(self, piece: int, copy: int) -> dict[str, Any]:
        """What the actor of a copy asks of Ray; ask once for each, in the order of the plan."""
        bundle = self._bundles[piece][copy]
        options: dict[str, Any] = {
            "num_cpus": bundle.get("CPU", 0),
            "num_gpus": bundle.get("GPU", 0),
            "memory": bundle.get("memory"),
            "resources": {k: v for k, v in bundle.items() if k not in ("CPU", "GPU", "memory")},
            "max_restarts": 0,
            "max_task_retries": 0,
        }
        ranged = self._plan.pieces[piece].least is not None
        group: Any
        group, number = (self._own[copy], 0) if ranged else (self._group, self._taken)
        if bundle:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                group, number, placement_group_capture_child_tasks=False
            )
            self._taken += not ranged
        elif ranged:
            options["scheduling_strategy"] = "DEFAULT"
        return options

    def close(self) -> None:
        """Give everything back."""
        groups, self._group, self._own = [self._group, *self._own], None, []
        for group in groups:
            if group is not None and ray.is_initialized():
                remove_placement_group(group)


def _busy(plan: Plan, least: Sequence[Sequence[Mapping[str, float]]], seconds: float) -> str:
    wants, free = total([bundle for piece in least for bundle in piece]), ray.available_resources()
    return (
        f"`{plan}` asks for {amounts(wants)}. The cluster has as much, but did not give it within "
        f"{seconds:g} s: {amounts({k: free.get(k, 0) for k in wants})} free now. Wait for other "
        "jobs to end, or ask for less with --resources: copies with cpu=0 share cores."
    )
