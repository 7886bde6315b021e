"""The uncut ring, whose gradients are made in parts on several devices of this process.

It is what `gradient*n` does, in one program: every device has the learner and all of memory, draws
the same batch and takes its own part of it. The numbers are those of the same copies anywhere else,
if XLA has as many threads there.
"""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from rondel.execution.hostenv.partition import EVERYTHING, LaneShare
from rondel.execution.stages import learning
from rondel.execution.stages.learning import GradientContribution, Peers
from rondel.execution.stages.task import Task
from rondel.execution.workers.data_parallel import all_gather, flatten_copies, unstack
from rondel.execution.workers.lane_trees import take_share
from rondel.execution.workers.stage_worker import StageWorker
from rondel.plan.parser import parse
from rondel.plan.plan import Plan
from rondel.types import Array, Tree

_SAME = PartitionSpec()  # type: ignore[no-untyped-call]


class GradientParallelWorker(StageWorker):
    """All stages, with gradients on several devices."""

    def __init__(self, task: Task, plan: Plan) -> None:
        self.parts = plan.copies("gradient")
        self.mesh = Mesh(np.array(jax.local_devices()[: self.parts]), ("copy",))
        super().__init__(task, parse("all"), 0, 0)

    def _start(self) -> None:
        super()._start()
        self.learner, self.memory = self._everywhere((self.learner, self.memory))

    def _everywhere(self, tree: Tree) -> Tree:
        return jax.device_put(tree, NamedSharding(self.mesh, _SAME))

    def _jit(self) -> None:
        super()._jit()
        task, parts = self.task, self.parts

        def one_part(seed: Array, learner: Tree, memory: Tree, round: Array) -> Tree:
            which = lax.axis_index("copy")

            def mine(batch: Tree) -> Tree:
                # a branch for each: what it gives lies in memory, as what comes from elsewhere
                # does; a slice would become part of the sums over it, in another order
                return lax.switch(
                    which,
                    [partial(take_share, LaneShare(i, parts)) for i in range(parts)],
                    (batch,),
                )

            def exchange(
                own: GradientContribution, feedback: Tree
            ) -> tuple[list[GradientContribution], Tree]:
                every, feedback = all_gather((own, feedback))
                return unstack(every, parts), flatten_copies(feedback)

            others = Peers(learning.WHOLE, (which, parts), mine, exchange)
            return learning.compute_learning(task, seed, learner, memory, round, others)

        learn = jax.shard_map(
            one_part,
            mesh=self.mesh,
            in_specs=(_SAME, _SAME, _SAME, _SAME),
            out_specs=_SAME,
            check_vma=False,
        )
        self._learn = jax.jit(learn, donate_argnums=2)

    def add(self, round: int, share: LaneShare = EVERYTHING, *items: Tree) -> None:
        """Put what was made here into memory, on every device."""
        self._made[0] = self._everywhere(self._made[0])
        super().add(round)

    def absorb(self, *summaries: Tree) -> None:
        """What the round's lanes report to the learner, on every device."""
        super().absorb(*map(self._everywhere, summaries))

    def acting(self) -> Tree:
        """What the policy needs to know of the learner; it acts on the first device."""
        return jax.tree.map(lambda x: x.addressable_data(0), super().acting())

    def restore(self, parts: dict[str, Tree]) -> None:
        """Go on from what `snapshot` once gave, or from some of it."""
        super().restore(parts)
        self.learner, self.memory = self._everywhere((self.learner, self.memory))
