"""The uncut ring, whose gradients are made in parts on several devices of this process.

It does what `gradient*n` does, in one program: every device has the learner and all of memory,
draws the same batch and takes its own part of it. The numbers are those of the same copies anywhere
else, if XLA has as many threads there.
"""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rondel.execution.hostenv.partition import LaneShare
from rondel.execution.stages.learning import compute_learning
from rondel.execution.stages.peers import WHOLE, GradientContribution, Peers
from rondel.execution.stages.task import Task, take_share
from rondel.execution.workers.data_parallel import all_gather, flatten_copies, unstack
from rondel.execution.workers.programs import Programs, compile_programs
from rondel.types import Array, Tree

_SAME = PartitionSpec()  # type: ignore[no-untyped-call]


def gradient_parallel_programs(task: Task, parts: int) -> Programs:
    """Programs of all stages, which act on the first device and learn on all of them."""
    mesh = Mesh(np.array(jax.local_devices()[:parts]), ("copy",))
    alone = compile_programs(task, task.lanes)

    def everywhere(tree: Tree) -> Tree:
        return jax.device_put(tree, NamedSharding(mesh, _SAME))

    def one_part(seed: Array, learner: Tree, memory: Tree, round: Array) -> Tree:
        which = lax.axis_index("copy")

        def mine(batch: Tree) -> Tree:
            # a branch for each: what it gives lies in memory, as what comes from elsewhere does;
            # a slice would become part of the sums over it, in another order
            shares = [partial(take_share, LaneShare(i, parts)) for i in range(parts)]
            return lax.switch(which, shares, (batch,))

        def exchange(
            own: GradientContribution, feedback: Tree
        ) -> tuple[list[GradientContribution], Tree]:
            every, feedback = all_gather((own, feedback))
            return unstack(every, parts), flatten_copies(feedback)

        others = Peers(WHOLE, (which, parts), mine, exchange=exchange)
        return compute_learning(task, seed, learner, memory, round, others)

    learn = jax.shard_map(
        one_part, mesh=mesh, in_specs=(_SAME, _SAME, _SAME, _SAME), out_specs=_SAME, check_vma=False
    )

    def add(seed: Array, memory: Tree, items: Tree, round: Array) -> Tree:
        return alone.add(seed, memory, everywhere(items), round)

    def absorb(learner: Tree, summary: Tree) -> Tree:
        return alone.absorb(learner, everywhere(summary))

    def acting(learner: Tree) -> Tree:
        return jax.tree.map(lambda x: x.addressable_data(0), alone.acting(learner))

    def place(name: str, tree: Tree) -> Tree:
        return everywhere(tree) if name in ("learner", "memory") else tree

    return alone._replace(
        add=add,
        absorb=absorb,
        acting=acting,
        learn=jax.jit(learn, donate_argnums=2),
        place=place,
        memories=parts,
    )
