"""Copies of the whole ring on several devices of this process, as one program.

Each device has some lanes and a shard of memory; the learner's state is the same on all. Summaries
and gradients are gathered and summed in copy order, so the numbers are those of the same copies
anywhere else, if XLA has as many threads there: on CPUs it has one for each device.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rondel.errors import RondelError
from rondel.execution.stages import acting, learning
from rondel.execution.stages.episode_stats import RecentEpisodes
from rondel.execution.stages.learning import GradientContribution, Peers
from rondel.execution.stages.task import (
    Task,
    jit_computed_leaves,
    with_keys,
    without_keys,
)
from rondel.execution.telemetry.timing import Metered
from rondel.execution.workers import fused
from rondel.plan.plan import Plan
from rondel.types import Array, Tree

_SMALL = 2**18  # numbers in an array
_EVERY, _SAME = PartitionSpec("copy"), PartitionSpec()  # type: ignore[no-untyped-call]


class DataParallelWorker(Metered):
    """All copies of `all*n`; it answers what a fused fragment is asked."""

    def __init__(self, task: Task, plan: Plan) -> None:
        self.task, self.copies = task, plan.pieces[0].copies
        self.mesh = Mesh(np.array(jax.local_devices()[: self.copies]), ("copy",))
        self.seed = np.uint32(task.seed)
        self.lane: Tree = np.arange(task.lanes, dtype=np.int32)
        part = (task.lanes // self.copies, self.copies)
        items, _ = acting.produced_like(task, part[0])

        def memories() -> Tree:
            one = task.algorithm.memory.init(items, self.copies)
            return jax.tree.map(lambda x: jnp.stack([x] * self.copies), one)

        self.learner = self._placed(learning.learner_initialiser(task)(self.seed), _SAME)
        self.lanes = self._placed(jax.jit(partial(acting.first_lanes, task))(self.lane), _EVERY)
        self.memory = self._placed(jax.jit(memories)(), _EVERY)
        self.env: Tree = ()
        self.step: Tree = ()
        self._acting = jit_computed_leaves(task.algorithm.acting)
        self.program = jax.jit(self._program(), donate_argnums=2)

    def _placed(self, tree: Tree, spec: PartitionSpec) -> Tree:
        return jax.device_put(tree, NamedSharding(self.mesh, spec))

    def _program(self) -> Any:
        copies = self.copies

        def exchange(
            own: GradientContribution, feedback: Tree
        ) -> tuple[list[GradientContribution], Tree]:
            return unstack(all_gather(own), copies), feedback

        def one_copy(seed: Array, state: fused.State, memory: Tree, *rest: Array) -> Tree:
            part = lax.axis_index("copy"), copies
            others = fused.Exchange(gather_lanes, Peers(part, part, exchange=exchange))
            mine = jax.tree.map(lambda x: x[0], memory)
            advance = fused.fused_program(self.task, others)
            state, mine, reports, n = advance(seed, state, mine, *rest)
            return state, jax.tree.map(lambda x: x[None], mine), reports, n

        state = fused.State(_SAME, _EVERY, _EVERY, _EVERY, _SAME)  # type: ignore[arg-type]
        return jax.shard_map(
            one_copy,
            mesh=self.mesh,
            in_specs=(_SAME, state, _EVERY, _EVERY, _SAME, _SAME, _SAME, _SAME),
            out_specs=(state, _EVERY, _SAME, _SAME),
            check_vma=False,
        )

    def begin(self, again: int = 0) -> None:
        """Begin an episode in every lane, others for each number `again`."""
        start = acting.episode_starter(self.task)
        self.env, self.step = self._placed(start(self.seed, self.lane, again), _EVERY)

    def advance(
        self, recent: RecentEpisodes, round: int, rounds: int, steps_left: int, until_return: float
    ) -> tuple[RecentEpisodes, list[fused.Round]]:
        """Up to `rounds` rounds of all copies in one program; see `fused`."""
        return fused.run_program(self, recent, round, rounds, steps_left, until_return)

    def acting(self) -> Tree:
        """What the policy needs to know of the learner."""
        return self._acting(self.learner)

    def snapshot(self, *names: str) -> dict[str, Tree]:
        """The states by name, with NumPy arrays; memory as a tuple of shards."""
        parts: dict[str, Tree] = {name: getattr(self, name) for name in _PARTS}
        parts = {k: v for k, v in parts.items() if not names or k in names} | {"made": ()}
        parts = jax.tree.map(np.asarray, {k: without_keys(v) for k, v in parts.items()})
        if "memory" in parts:
            memory = parts["memory"]
            shards = [jax.tree.map(lambda x, i=i: x[i], memory) for i in range(self.copies)]
            parts["memory"] = tuple(shards)
        return parts

    def restore(self, parts: dict[str, Tree]) -> None:
        """Go on from what `snapshot` once gave, or from some of it."""
        if parts.pop("made", None):
            raise RondelError(
                "This checkpoint has rounds in flight, which copies in one program on several "
                "devices can't take in: --on processes would."
            )
        for name, tree in parts.items():
            if name == "memory":
                tree = jax.tree.map(lambda *xs: np.stack(xs), *tree)
            whole = with_keys(getattr(self, name), jax.tree.map(jnp.array, tree))
            setattr(self, name, self._placed(whole, _SAME if name == "learner" else _EVERY))

    def close(self) -> None:
        """Nothing to free."""


def all_gather(tree: Tree) -> Tree:
    """A tree of all copies [copies, ...], in their order; small arrays of a type go as one.

    Copies wait for each other at every array that they exchange, which takes longer than to join
    it with others, unless it is large.
    """
    leaves, form = jax.tree.flatten(tree)
    small = [i for i, x in enumerate(leaves) if x.size <= _SMALL]
    every = {i: lax.all_gather(x, "copy") for i, x in enumerate(leaves) if x.size > _SMALL}
    for kind in dict.fromkeys(leaves[i].dtype for i in small):
        mine = [i for i in small if leaves[i].dtype == kind]
        flat = jnp.concatenate([leaves[i].ravel() for i in mine])
        ends = np.cumsum([leaves[i].size for i in mine])[:-1].tolist()
        parts = jnp.split(lax.all_gather(flat, "copy"), ends, axis=1)
        every |= {i: x.reshape(-1, *leaves[i].shape) for i, x in zip(mine, parts, strict=True)}
    return jax.tree.unflatten(form, [every[i] for i in range(len(leaves))])


def gather_lanes(tree: Tree) -> Tree:
    """Rows [b, ...] of all copies, in their order [B, ...]."""
    return flatten_copies(all_gather(tree))


def flatten_copies(tree: Tree) -> Tree:
    """Rows of all copies [copies, b, ...] as [B, ...]."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def unstack(tree: Tree, copies: int) -> list[Tree]:
    """The trees of all copies [copies, ...], one by one."""
    return [jax.tree.map(lambda x, i=i: x[i], tree) for i in range(copies)]


_PARTS = ("learner", "lanes", "step", "env", "memory")
