"""Copies of the whole ring on several devices of this process, as one program.

Each device has some lanes and a shard of memory; the learner's state is the same on all. Summaries
and gradients are gathered and summed in copy order, so the numbers are those of the same copies
anywhere else, if XLA has as many threads there: on CPUs it has one for each device.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rondel.execution.stages.peers import GradientContribution, Peers
from rondel.execution.stages.round import State
from rondel.execution.stages.task import Task
from rondel.execution.workers import fused
from rondel.execution.workers.programs import Programs, compile_programs
from rondel.types import Array, Tree

_SMALL = 2**18  # numbers in an array
_EVERY, _SAME = PartitionSpec("copy"), PartitionSpec()  # type: ignore[no-untyped-call]


def data_parallel_programs(task: Task, copies: int) -> Programs:
    """Programs of all copies of `all*n`, for a worker that has the whole ring."""
    mesh = Mesh(np.array(jax.local_devices()[:copies]), ("copy",))
    one = compile_programs(task, task.lanes // copies, (0, copies))

    def exchange(
        own: GradientContribution, feedback: Tree
    ) -> tuple[list[GradientContribution], Tree]:
        return unstack(all_gather(own), copies), feedback

    def one_copy(seed: Array, state: State, memory: Tree, *rest: Array) -> Tree:
        part = lax.axis_index("copy"), copies
        others = Peers(part, part, lanes=gather_lanes, exchange=exchange)
        mine = jax.tree.map(lambda x: x[0], memory)
        compute_rounds = fused.fused_program(task, others)
        state, mine, reports, n = compute_rounds(seed, state, mine, *rest)
        return state, jax.tree.map(lambda x: x[None], mine), reports, n

    state = State(_SAME, _EVERY, _EVERY, _EVERY, _SAME)  # type: ignore[arg-type]
    compute_rounds = jax.shard_map(
        one_copy,
        mesh=mesh,
        in_specs=(_SAME, state, _EVERY, _EVERY, _SAME, _SAME, _SAME, _SAME),
        out_specs=(state, _EVERY, _SAME, _SAME),
        check_vma=False,
    )

    def init_memory() -> Tree:
        return jax.tree.map(lambda x: jnp.stack([x] * copies), one.init_memory())

    def place(name: str, tree: Tree) -> Tree:
        return jax.device_put(tree, NamedSharding(mesh, _SAME if name == "learner" else _EVERY))

    def export(name: str, tree: Tree) -> Tree:
        tree = jax.tree.map(np.asarray, tree)
        return tuple(unstack(tree, copies)) if name == "memory" else tree

    def load(name: str, tree: Tree) -> Tree:
        return jax.tree.map(lambda *xs: np.stack(xs), *tree) if name == "memory" else tree

    return one._replace(
        init_memory=jax.jit(init_memory),
        compute_rounds=jax.jit(compute_rounds, donate_argnums=2),
        place=place,
        export=export,
        load=load,
    )


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
