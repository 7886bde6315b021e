"""What a run will take of a machine's memory, from shapes alone: before anything is made.

It is the arrays that last, or that are there once a round, what a process takes by itself, and what
is left of compiling. What XLA takes while a program runs is not in it, and nobody knows what an
environment outside JAX takes.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rondel.execution.backends import registry
from rondel.execution.hostenv.seeds import Purpose
from rondel.execution.stages import acting, learning
from rondel.execution.stages.rng import per_lane, purpose_key
from rondel.execution.stages.task import Task, keeps_state
from rondel.execution.workers import gradient_parallel
from rondel.formatting import size
from rondel.plan.pieces import Piece
from rondel.plan.plan import Plan
from rondel.run.setup.memory_shapes import Shard, bytes_of, shard_like
from rondel.run.setup.prepare import Setup
from rondel.types import Env, Tree

_MIB = 2**20
# Bytes of a process, as they were resident on Linux in DQN, PPO, R2D2, SAC and AlphaZero runs. All
# of them have JAX, of which processes share up to a half
_DRIVER = 300 * _MIB  # 240 to 330, where the pieces are in processes of their own
_WHOLE = 400 * _MIB  # 360 to 470, where they are in its own
_PIECE = 250 * _MIB  # 170 to 290
_SMALL_PIECE = 40 * _MIB  # with environments outside JAX only
# What XLA took for compiling it did not give back: up to so much of a process that acts, and of one
# that learns. A program that was compiled before is read from disk
_COMPILING = 250 * _MIB
_LEARNER = {"label", "gradient", "update"}  # who knows all that is learned, not how to act alone
_HANDED = "what is handed over"
_KNOBS = {
    "memory": "a smaller capacity",
    "frames": "a smaller capacity",
    "rollout": "a smaller rollout or fewer lanes",
    "env": "fewer lanes",
    "batch": "a smaller batch",
    "processes": "fewer copies",
    _HANDED: "fewer cuts",
}


class PieceMemory(NamedTuple):
    """What one copy of a piece holds."""

    name: str
    copies: int
    holds: dict[str, int]  # bytes by what they are

    @property
    def total(self) -> int:
        """Of all copies."""
        return self.copies * sum(self.holds.values())


class MemoryEstimate(NamedTuple):
    """What a run holds."""

    pieces: tuple[PieceMemory, ...]
    processes: int
    process_bytes: int  # of all of them, before they hold anything
    rings: int = 1  # that are there at a time, each with a seed of its own
    driver: int = 0  # bytes of the driver's process, among those of all
    compiling: int = 0  # bytes more, at the most, where programs are compiled for the first time

    @property
    def total(self) -> int:
        """All of it, where programs were compiled before."""
        return self.process_bytes + sum(piece.total for piece in self.pieces)

    def times(self, rings: int) -> MemoryEstimate:
        """That of so many such runs at a time, which share the driver's process."""
        pieces = tuple(piece._replace(copies=rings * piece.copies) for piece in self.pieces)
        processes = 1 + rings * (self.processes - 1)
        each = self.driver + rings * (self.process_bytes - self.driver)
        compiling = self.compiling * (rings if self.processes > 1 else 1)
        return MemoryEstimate(pieces, processes, each, rings * self.rings, self.driver, compiling)

    def warning(self, room: int) -> str:
        """A sentence if it will not fit into so many bytes; nothing if it will."""
        most = self.total + self.compiling
        if not room or most <= room:
            return ""
        held = {"processes": self.process_bytes + self.compiling}
        for piece in self.pieces:
            for what, count in piece.holds.items():
                held[what] = held.get(what, 0) + piece.copies * count
        largest = max(held, key=lambda what: held[what])
        fewer = " or fewer seeds" if self.rings > 1 else ""
        return (
            f"This run will take about {size(most)}, and {size(room)} are free here: it may be "
            f"killed. Most of it is {largest}, {size(held[largest])}: "
            f"{_KNOBS.get(largest, 'a smaller network')}{fewer} would take less."
        )


def estimate(setup: Setup) -> MemoryEstimate:
    """The cost of a run that is ready to be made."""
    task, plan, backend = setup.task, setup.plan, registry.find(setup.options.on)
    shard = shard_like(task, plan.copies("memory"), backend.name)
    pieces = tuple(
        PieceMemory(piece.name, piece.copies, _holds(task, plan, piece, shard))
        for piece in plan.pieces
    )
    if backend.own_process:
        pieces = tuple(map(partial(_handing, task, plan, shard), plan.pieces, pieces))
    if backend.fuses_copies and gradient_parallel.fits(plan):
        pieces = tuple(map(partial(_on_devices, plan.copies("gradient")), plan.pieces, pieces))
    apart = plan.pieces if backend.own_process else ()
    hosted = not isinstance(task.env, Env)
    each = [
        piece.copies * (_SMALL_PIECE if hosted and piece.stages == ("env",) else _PIECE)
        for piece in apart
    ]
    driver = _DRIVER if apart else _WHOLE
    # in one process copies have their programs in common
    compiled = [
        (piece.copies if apart else 1) * _COMPILING * len({"policy", "gradient"} & {*piece.stages})
        for piece in plan.pieces
    ]
    processes = 1 + sum(piece.copies for piece in apart)
    return MemoryEstimate(pieces, processes, driver + sum(each), 1, driver, sum(compiled))


def _holds(task: Task, plan: Plan, piece: Piece, shard: Shard) -> dict[str, int]:
    stages, lanes = piece.stages, task.lanes // piece.copies
    learner = jax.eval_shape(partial(learning.init_learner, task), np.uint32(0))
    weights = bytes_of(jax.eval_shape(task.algorithm.learning, learner))
    held = dict[str, int]()
    if _LEARNER & set(stages):
        held["weights"] = weights
    elif "policy" in stages:
        held["weights"] = bytes_of(acting.weights_like(task))
    if "update" in stages:
        held["optimiser"] = max(0, bytes_of(learner) - weights)
    if "gradient" in stages:
        held["gradients"] = weights
    if {"label", "gradient"} & set(stages):
        held["batch"] = bytes_of(shard.batch) * plan.copies("memory") // piece.copies
    if "memory" in stages:
        frames = _frames(shard.memory)
        held |= {"memory": bytes_of(shard.memory) - frames}
        held |= {"frames": frames} if frames else {}
    if "policy" in stages:
        lane = jax.eval_shape(lambda: jnp.arange(lanes, dtype=jnp.int32))
        rows = bytes_of(acting.row_like(task, lane)) * task.algorithm.rollout
        items = bytes_of(acting.produced_like(task, lanes)[0])
        held["rollout"] = rows + items * (1 + plan.lag)
    if "env" in stages and keeps_state(task.env):
        keys = jax.eval_shape(lambda: per_lane(purpose_key(0, Purpose.ENV), jnp.arange(lanes)))
        held["env"] = bytes_of(jax.eval_shape(task.env.init, keys)[0])
    return held


def _handing(task: Task, plan: Plan, shard: Shard, piece: Piece, cost: PieceMemory) -> PieceMemory:
    """With the messages of a round: who makes one keeps it, who takes items copies them first."""
    stages, held = set(piece.stages), 0
    if len({"policy", "memory"} & stages) == 1:
        acts = "policy" in stages
        items = bytes_of(acting.produced_like(task, task.lanes // piece.copies)[0])
        held += items * (1 + plan.lag if acts else 1)
    if "memory" in stages and not {"label", "gradient"} & stages:
        held += bytes_of(shard.batch)
    return cost._replace(holds=cost.holds | {_HANDED: held}) if held else cost


def _on_devices(devices: int, piece: Piece, cost: PieceMemory) -> PieceMemory:
    """A piece whose work is part of one program on several devices.

    Each has the learner, all of memory and whole batches; lanes, with what they act by and what
    they have made, are on one.
    """
    if piece.copies > 1:
        whole = {"batch": piece.copies * cost.holds["batch"]}
        return cost._replace(copies=devices, holds=cost.holds | whole)
    once = {"rollout", "env"} | (set() if _LEARNER & set(piece.stages) else {"weights"})
    held = {what: n if what in once else devices * n for what, n in cost.holds.items()}
    return cost._replace(holds=held)


def _frames(memory: Tree) -> int:
    """The bytes of frames that are stored once for all observations that show them."""
    leaves = jax.tree_util.tree_flatten_with_path(memory)[0]
    return sum(bytes_of(x) for path, x in leaves if getattr(path[-1], "name", "") == "newest")
