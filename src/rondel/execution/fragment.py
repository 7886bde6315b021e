"""A fragment: neighbouring stages of the ring in one place, with their states.

A fragment answers the few requests that the loop makes. Each request is one XLA program, but for
`produce` over a host environment, which is a Python loop around one.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import partial
from typing import Any

import jax
import numpy as np

from rondel.errors import RondelError
from rondel.execution import experience, fused, learning
from rondel.execution.episodes import Recent
from rondel.execution.experience import Lanes, Produced
from rondel.execution.keys import Purpose, lane_seeds
from rondel.execution.task import Task, to_device
from rondel.types import Env, HostEnv, Step, Tree

STAGES = ("env", "policy", "memory", "gradient", "update")


class Fragment:
    """The states of some stages, and what can be asked of them."""

    def __init__(self, task: Task, stages: Collection[str] = STAGES) -> None:
        self.task = task
        self.stages = tuple(stages)
        self.seed = np.uint32(task.seed)
        self.lane: Tree = np.arange(task.lanes, dtype=np.int32)
        self.learner: Tree = ()
        self.memory: Tree = ()
        self.env: Tree = ()
        self.step: Tree = None  # a Step, once the environment has started
        self.lanes: Tree = None  # Lanes, once the policy has
        self.host: HostEnv | None = None
        self._ticket: Tree = ()
        self._jit()

    def _jit(self) -> None:
        task, algorithm = self.task, self.task.algorithm
        # Only memory is donated: everything else may have been handed out.
        self._roll = jax.jit(partial(experience.roll, task))
        self._begin = jax.jit(partial(experience.begin, task))
        self._keys = jax.jit(lambda *at: jax.random.key_data(experience.act_keys(task, *at)))
        self._act = jax.jit(partial(experience.act_blocks, task))
        self._finish = jax.jit(partial(experience.finish_blocks, task))
        self._add = jax.jit(partial(learning.add, task), donate_argnums=1)
        self._draw = jax.jit(partial(learning.draw, task))
        self._rank = jax.jit(algorithm.memory.rank, donate_argnums=0)
        self._gradient = jax.jit(partial(learning.gradient, task))
        self._learn = jax.jit(partial(learning.learn, task), donate_argnums=2)
        self._acting = jax.jit(algorithm.acting)
        self._learning = jax.jit(algorithm.learning)
        self._absorb = jax.jit(algorithm.absorb)
        self._update = jax.jit(algorithm.update)
        self._advance = fused.program(task)

    # env

    def start_env(self, again: int = 0) -> Step:
        """Begin an episode in every lane; host lanes begin others for each number `again`."""
        task = self.task
        if isinstance(task.env, Env):
            self.env, self.step = jax.jit(partial(experience.first_step, task))(
                self.seed, self.lane
            )
        else:
            self.host = self.host or task.env.make(task.lanes)
            seeds = lane_seeds(task.seed, Purpose.ENV, task.lanes, again)
            self.step = to_device(self.host.reset(seeds))
        return self.step

    # policy

    def start_policy(self, weights: Tree, step: Step) -> Tree:
        """New lanes; returns what the items of a round will look like."""
        task = self.task
        self.lanes = jax.jit(partial(experience.first_lanes, task))(weights, step, self.lane)
        return experience.items_like(task, weights, step, self.lane)

    def produce(self, weights: Tree, round: int) -> Produced:
        """A round's experience with these weights."""
        if self.host is not None:
            return self._produce_on_host(self.host, weights, round)
        self.env, self.step, self.lanes, produced = self._roll(
            self.seed, weights, self.env, self.step, self.lanes, self.lane, round
        )
        return produced

    def _produce_on_host(self, env: HostEnv, weights: Tree, round: int) -> Produced:
        step, carry = self.step, self._begin(self.seed, weights, self.lanes.carry, round, self.lane)
        keys = np.asarray(self._keys(self.seed, round, self.lane))
        rows, outcomes = [], []
        for t in range(self.task.algorithm.rollout):
            action, after, extras, carry = self._act(
                weights, carry, step.obs, step.first, keys[t], self.lane
            )
            next_step = to_device(env.step(np.asarray(action)))
            rows.append(experience.row_of(step, action, extras, carry, next_step))
            outcomes.append(experience.outcome_of(next_step))
            step, carry = next_step, after
        stacked = stack(rows)
        self._refuse_non_finite(stacked)
        items, summary, tail = self._finish(weights, self.lanes.tail, stacked, step, self.lane)
        self.step, self.lanes = step, Lanes(carry, tail)
        return Produced(items, summary, jax.tree.map(np.transpose, stack(outcomes)))

    def _refuse_non_finite(self, rows: experience.Row) -> None:
        """Name an environment that gives NaN: in a loss it would pass for the learner's."""
        for name, tree in (("observations", rows.obs), ("rewards", rows.reward)):
            for leaf in jax.tree.leaves(tree):
                if np.issubdtype(leaf.dtype, np.floating) and not np.isfinite(leaf).all():
                    lane = int(np.argwhere(~np.isfinite(leaf))[0][1])
                    raise RondelError(
                        f"{self.task.env.spec.id} gave {name} that are not finite, in lane {lane}: "
                        "an environment must give numbers."
                    )

    # memory

    def start_memory(self, items_like: Tree) -> None:
        """An empty memory for such items."""
        init = self.task.algorithm.memory.init
        like = jax.eval_shape(lambda: init(items_like, 1))
        held = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(like))
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if held > there:
            raise RondelError(
                f"Memory would take {held / 2**30:.1f} GiB, but this machine has "
                f"{there / 2**30:.1f}: a smaller capacity, rollout or number of lanes would fit."
            )
        self.memory = jax.jit(lambda: init(items_like, 1))()

    def add(self, items: Tree, round: int) -> None:
        """Put a round's items into memory."""
        self.memory = self._add(self.seed, self.memory, items, round)

    def draw(self, round: int, j: int) -> Tree:
        """The j-th batch of the round; its ticket stays here."""
        batch, self._ticket = self._draw(self.seed, self.memory, round, j)
        return batch

    def rank(self, feedback: Tree) -> None:
        """What the learner found about the batch drawn last."""
        self.memory = self._rank(self.memory, self._ticket, feedback)

    # gradient

    def gradient(self, variables: Tree, batch: Tree, round: int, j: int) -> Any:
        """(grads, weight, feedback, metrics) of a batch."""
        return self._gradient(self.seed, variables, batch, round, j)

    # update

    def start_update(self) -> None:
        """The learner's first state."""
        self.learner = jax.jit(partial(learning.init, self.task))(self.seed)

    def absorb(self, summary: Tree) -> None:
        """What the round's lanes report to the learner."""
        self.learner = self._absorb(self.learner, summary)

    def update(self, grads: Tree) -> None:
        """One step of the optimiser."""
        self.learner = self._update(self.learner, grads)

    def learning(self) -> Tree:
        """What a gradient needs to know of the learner."""
        return self._learning(self.learner)

    def acting(self) -> Tree:
        """What the policy needs to know of the learner."""
        return self._acting(self.learner)

    # memory, gradient and update together

    def learn(self, round: int) -> dict[str, Any]:
        """All draws of a round in one program."""
        self.learner, self.memory, metrics = self._learn(
            self.seed, self.learner, self.memory, round
        )
        return metrics

    # all stages over a traceable environment together

    def advance(
        self, recent: Recent, round: int, rounds: int, steps_left: int, until_return: float
    ) -> tuple[Recent, list[fused.Round]]:
        """Up to `rounds` rounds in one program; see `fused`."""
        state = fused.State(self.learner, self.env, self.step, self.lanes, recent)
        state, self.memory, reports, n = self._advance(
            self.seed, state, self.memory, self.lane, round, rounds, steps_left, until_return
        )
        self.learner, self.env, self.step, self.lanes, recent = state
        reports = jax.tree.map(np.asarray, reports)
        return recent, [jax.tree.map(lambda x, i=i: x[i], reports) for i in range(int(n))]

    def close(self) -> None:
        """Free what the environment holds."""
        if self.host is not None:
            self.host.close()


def stack(trees: list[Any]) -> Any:
    """Trees of one shape, stacked along a new first axis in fresh host memory."""
    return jax.tree.map(lambda *xs: np.stack(xs), *trees)
