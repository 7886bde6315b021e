"""The environments that a policy copy drives, and the rollout that it collects from them.

While the environments of one phase step, the policy acts for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from rondel.errors import RondelError
from rondel.execution.hostenv.host_envs import EnvClient
from rondel.execution.hostenv.partition import Group
from rondel.execution.stages.rows import Outcome, Row, outcome_of, row_of
from rondel.execution.stages.task import concat_lanes, stack, to_device
from rondel.execution.telemetry.timing import SIMULATOR, STEPS, TRANSPORT, XLA, Meter
from rondel.types import Array, Step, Tree

_AROUND = (slice(None, -1), slice(1, None))  # of T + 1 steps: before and after each action


# to call once a policy has acted, and once its environments were sent actions
TimingMarks: TypeAlias = tuple[Callable[[], None], Callable[[], None]]


class EnvClients(NamedTuple):
    """Environments behind links, in the order of their lanes."""

    links: Mapping[int, EnvClient]
    phases: tuple[tuple[Group, ...], ...]
    here: bool  # in this thread: then a link's time is the simulator's
    meter: Meter

    @property
    def groups(self) -> list[Group]:
        return [group for phase in self.phases for group in phase]

    def reset(self, episode: int) -> Step:
        """Begin new episodes, different ones for each number `episode`."""
        for group in self.groups:
            self.links[group.env].reset(group.first_lane, episode)
        if self.here:
            self.meter.ran("env", "reset", SIMULATOR)  # the first also makes some of them
        steps = [self.links[group.env].take(group.first_lane) for group in self.groups]
        if not self.here:
            self.meter.mark("env", STEPS)
        first = concat_lanes([to_device(step) for step in steps])
        if not self.here:
            self.meter.mark("env", TRANSPORT, _nbytes(first.obs))
        return first

    def ask(self, phase: tuple[Group, ...], action: np.ndarray) -> None:
        """Send actions to the lanes of a phase."""
        base = phase[0].first_lane
        for group in phase:
            begin = group.first_lane - base
            self.links[group.env].step(group.first_lane, action[begin : begin + group.lanes])

    def take(self, phase: tuple[Group, ...], buffer: RolloutBuffer, t: int) -> None:
        """Write the steps of a phase's lanes into the t-th place of their buffer.

        In this thread that takes too little time to measure, so it is booked to the policy.
        """
        steps = [self.links[group.env].take(group.first_lane) for group in phase]
        if not self.here:
            self.meter.mark("env", STEPS)
        for group, step in zip(phase, steps, strict=True):
            begin = group.first_lane - phase[0].first_lane
            buffer.write(t, slice(begin, begin + group.lanes), step)
        if not self.here:
            self.meter.mark("env", TRANSPORT, buffer.obs_bytes)

    def marks(self, t: int) -> TimingMarks:
        """Timing marks for the t-th step; the first of all compiles."""
        kind = SIMULATOR if self.here else TRANSPORT
        acted = self.meter.mark if t else self.meter.ran
        return partial(acted, "policy", XLA if t else "act"), partial(self.meter.mark, "env", kind)

    def states(self) -> Tree:
        """The states of environments elsewhere, lane by lane."""
        for group in self.groups:
            self.links[group.env].state(group.first_lane)
        return concat_lanes([self.links[group.env].take(group.first_lane) for group in self.groups])

    def set_states(self, states: Tree) -> None:
        """Restore the states of environments elsewhere."""
        first = self.groups[0].first_lane
        for group in self.groups:
            mine = slice(group.first_lane - first, group.first_lane - first + group.lanes)
            state = jax.tree.map(lambda x, mine=mine: np.asarray(x)[mine], states)
            self.links[group.env].set_state(group.first_lane, state)
        for group in self.groups:
            self.links[group.env].take(group.first_lane)


class RolloutBuffer:
    """The steps of some lanes in a round [T + 1, b, ...], in preallocated memory."""

    def __init__(self, rollout: int, first: Step) -> None:
        def places(x: Any) -> np.ndarray:
            return np.empty((rollout + 1, *x.shape), x.dtype)

        self.steps: Step = jax.tree.map(places, first)
        self.obs_bytes = _nbytes(first.obs)
        self._flat = isinstance(self.steps.obs, np.ndarray)  # a Step has no further leaves then
        self._leaves = jax.tree.leaves(self.steps)
        self.write(0, slice(None), first)

    def write(self, t: int, lanes: slice, step: Step) -> None:
        """Copy a step of some lanes into the t-th place."""
        said = step if self._flat else jax.tree.leaves(step)
        if t == 1 and not self._is_like_the_first(lanes, step, said):
            raise self._unlike(lanes, step)
        for kept, new in zip(self._leaves, said, strict=True):
            kept[t, lanes] = new

    def _is_like_the_first(self, lanes: slice, step: Step, said: Sequence[Any]) -> bool:
        """Has a step the form of the reset? Else it would be converted without notice."""
        structure: Any = jax.tree.structure(step)
        return bool(structure == jax.tree.structure(self.steps)) and all(
            kept[0, lanes].shape == new.shape and np.can_cast(new.dtype, kept.dtype, "same_kind")
            for kept, new in zip(self._leaves, said, strict=True)
        )

    def _unlike(self, lanes: slice, step: Step) -> RondelError:
        def looks(step: Step) -> str:
            parts = jax.tree.leaves_with_path(step)
            named = {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in parts}
            return ", ".join(f"{name} {x.dtype} {list(x.shape)}" for name, x in named.items())

        first = jax.tree.map(lambda x: x[0, lanes], self.steps)
        return RondelError(
            "An environment's reset() and step() must give arrays of the same shapes and types. "
            f"reset() gave {looks(first)}; step() gave {looks(step)}."
        )

    def before(self, t: int) -> tuple[Tree, Array]:
        """The observation before the t-th action, and whether it is the first of an episode."""
        obs = self.steps.obs
        return obs[t] if self._flat else jax.tree.map(lambda x: x[t], obs), self.steps.first[t]

    def last(self) -> Step:
        """A copy of the last step, so that the buffer can be freed."""
        step: Step = jax.tree.map(lambda x: x[-1].copy(), self.steps)
        return step


def _nbytes(tree: Tree) -> int:
    return sum(x.nbytes for x in jax.tree.leaves(tree))


class LaneGroup:
    """Some of a policy copy's lanes, and their rollout so far."""

    def __init__(
        self,
        driven: EnvClients,
        phase: tuple[Group, ...],
        act: Callable[..., Tree],
        lane: Array,
        keys: Array,
        begun: tuple[Tree, Tree, Step],
    ) -> None:
        """`keys` [T, b, 2] and `begun` (carry, own, step) are of all lanes of the copy."""
        self._driven, self._phase, self._act, self._lane = driven, phase, act, lane
        begin = phase[0].first_lane - driven.groups[0].first_lane
        here = slice(begin, begin + len(lane))
        whole = here == slice(0, keys.shape[1])
        self._keys = keys if whole else keys[:, here]
        mine = [tree if whole else jax.tree.map(lambda x: x[here], tree) for tree in begun]
        self.carry, self._own, step = mine
        self.buffer = RolloutBuffer(len(keys), step)
        self._acts: list[Tree] = []  # (action, extras, carry before acting) after each step

    def act(self, weights: Tree, t: int, marks: TimingMarks) -> None:
        """Receive the last step, if there was one, choose actions and send them."""
        self._receive()
        obs, first = self.buffer.before(t)
        action, after, extras, carry = self._act(
            weights, self.carry, obs, first, self._keys, t, self._lane, self._own
        )
        chosen = np.asarray(action)
        marks[0]()
        self._driven.ask(self._phase, chosen)
        marks[1]()
        self._acts.append((chosen, extras, carry))
        self.carry = after

    def _receive(self) -> None:
        """Receive the last step."""
        if self._acts:
            self._driven.take(self._phase, self.buffer, len(self._acts))

    def finish(self) -> tuple[Row, Outcome]:
        """The round's rows and outcome [T, b]."""
        self._receive()
        before, after = (jax.tree.map(lambda x, at=at: x[at], self.buffer.steps) for at in _AROUND)
        action, extras, carry = stack(self._acts)
        return row_of(before, action, extras, carry, after), outcome_of(after)
