"""Environments that a policy copy drives by links, and the halves of a round in which it does.

While the environments of one phase step, the policy acts for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from rondel.execution import experience
from rondel.execution.experience import Row
from rondel.execution.hosted import Link
from rondel.execution.layout import Group
from rondel.execution.meter import SIMULATOR, STEPS, TRANSPORT, XLA, Meter
from rondel.execution.parts import copied, joined, stack
from rondel.types import Step, Tree

_AROUND = (slice(None, -1), slice(1, None))  # of T + 1 steps: before and after each action


class Marks(NamedTuple):
    """What is called when a policy has acted, and when its environments were asked for a step."""

    acted: Callable[[], None]
    asked: Callable[[], None]


class Driven(NamedTuple):
    """Environments behind links, in the order of their lanes."""

    links: Mapping[int, Link]
    phases: tuple[tuple[Group, ...], ...]
    here: bool  # in the same thread: what a link takes is the simulator's time
    meter: Meter

    @property
    def groups(self) -> list[Group]:
        return [group for phase in self.phases for group in phase]

    def reset(self, again: int) -> Step:
        """Begin new episodes, others for each number `again`."""
        for group in self.groups:
            self.links[group.env].reset(group.first_lane, again)
        if self.here:
            self.meter.ran("env", "reset", SIMULATOR)  # the first makes some of them, too
        return joined([self.take(phase) for phase in self.phases])

    def ask(self, phase: tuple[Group, ...], action: np.ndarray) -> None:
        """Ask for a step of a phase's lanes."""
        base = phase[0].first_lane
        for group in phase:
            begin = group.first_lane - base
            self.links[group.env].step(group.first_lane, action[begin : begin + group.lanes])

    def take(self, phase: tuple[Group, ...], nbytes: int = 0) -> Step:
        """The answer to what was asked last of a phase, with so much to see.

        In the same thread it costs too little to look at the clock: it is the policy's then.
        """
        steps = [self.links[group.env].take(group.first_lane) for group in phase]
        if self.here:
            return copied(steps[0]) if len(steps) == 1 else joined(steps)
        self.meter.mark("env", STEPS)
        step = copied(steps[0]) if len(steps) == 1 else joined(steps)
        self.meter.mark("env", TRANSPORT, nbytes)
        return step

    def marks(self, t: int) -> Marks:
        """What marks the work of the t-th step; where it is all in this thread, of all after it."""
        kind = SIMULATOR if self.here else TRANSPORT
        if t == 0:  # the first of all compiles
            return Marks(
                partial(self.meter.ran, "policy", "act"), partial(self.meter.mark, "env", kind)
            )
        if self.here:
            return Marks(*[self.meter.beats(("policy", XLA), ("env", kind))] * 2)
        return Marks(partial(self.meter.mark, "policy", XLA), partial(self.meter.mark, "env", kind))

    def states(self) -> Tree:
        """The states of environments elsewhere, lane by lane."""
        for group in self.groups:
            self.links[group.env].ask("state", group.first_lane, None)
        return joined([self.links[group.env].take(group.first_lane) for group in self.groups])

    def set_states(self, states: Tree) -> None:
        """Put environments elsewhere back to what `states` once gave."""
        first = self.groups[0].first_lane
        for group in self.groups:
            mine = slice(group.first_lane - first, group.first_lane - first + group.lanes)
            state = jax.tree.map(lambda x, mine=mine: np.asarray(x)[mine], states)
            self.links[group.env].ask("set_state", group.first_lane, state)
        for group in self.groups:
            self.links[group.env].take(group.first_lane)


class Half:
    """A phase of a round: some of a policy copy's lanes, and what they have been through so far."""

    def __init__(
        self,
        driven: Driven,
        phase: tuple[Group, ...],
        act: Callable[..., Tree],
        lane: np.ndarray,
        keys: Any,
        begun: tuple[Tree, Tree, Step],
    ) -> None:
        """`lane`, `keys` and `begun` (carry, own, step) are of all lanes of the copy."""
        self._driven, self._phase, self._act = driven, phase, act
        begin = phase[0].first_lane - int(lane[0])
        here = slice(begin, begin + sum(group.lanes for group in phase))
        whole = here == slice(0, len(lane))
        self._lane = jax.device_put(lane[here])
        self._keys = keys if whole else keys[:, here]
        self.carry, self._own, step = (
            tree if whole else jax.tree.map(lambda x: x[here], tree) for tree in begun
        )
        self.steps: list[Step] = [step]
        self._bytes = sum(x.nbytes for x in jax.tree.leaves(step.obs))
        self._acts: list[Tree] = []  # (action, extras, carry before acting) after each step

    def act(self, weights: Tree, t: int, marks: Marks) -> None:
        """Take the answer to the last action, if there was one, and ask for a step by the next."""
        self._see()
        step = self.steps[-1]
        action, after, extras, carry = self._act(
            weights, self.carry, step.obs, step.first, self._keys, t, self._lane, self._own
        )
        chosen = np.asarray(action)
        marks.acted()
        self._driven.ask(self._phase, chosen)
        marks.asked()
        self._acts.append((action, extras, carry))
        self.carry = after

    def _see(self) -> None:
        """Take the answer to what was asked for."""
        if len(self._acts) == len(self.steps):
            self.steps.append(self._driven.take(self._phase, self._bytes))

    def finish(self) -> tuple[Row, experience.Outcome]:
        """The round's rows and outcome [T, b]."""
        self._see()
        steps = stack(self.steps)
        before, after = (jax.tree.map(lambda x, at=at: x[at], steps) for at in _AROUND)
        action, extras, carry = stack(self._acts)
        return experience.row_of(before, action, extras, carry, after), experience.outcome_of(after)
