"""Shapes and types of what the copies of a plan keep and send, and the memory that a run takes."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rondel.execution.backends import registry
from rondel.execution.backends.lowering import Kind, Lowering
from rondel.execution.hostenv.partition import phases, route
from rondel.execution.hostenv.seeds import Purpose
from rondel.execution.stages import learning, shapes
from rondel.execution.stages.labelling import compute_label
from rondel.execution.stages.peers import GradientContribution
from rondel.execution.stages.rows import Row
from rondel.execution.stages.task import (
    Task,
    bytes_of,
    check_fits_in_memory,
    keeps_state,
    take_share,
)
from rondel.formatting import size
from rondel.ops.random import per_lane, purpose_key
from rondel.plan.pieces import Piece
from rondel.plan.plan import Plan
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
_MESSAGES = "messages"
_KNOBS = {
    "memory": "a smaller capacity",
    "frames": "a smaller capacity",
    "rollout": "a smaller rollout or fewer lanes",
    "env": "fewer lanes",
    "batch": "a smaller batch",
    "processes": "fewer copies",
    _MESSAGES: "fewer cuts",
}


class ShapeModel:
    """What copies of a plan keep and send; each property is traced when it is first read."""

    def __init__(self, task: Task, plan: Plan, on: str | None) -> None:
        self.task, self.plan = task, plan
        self._limited = not registry.find(on).remote  # by the memory of this machine

    # what copies keep

    @cached_property
    def learner(self) -> Tree:
        return shapes.learner_like(self.task)

    @cached_property
    def memory(self) -> Tree:
        """What one shard keeps; refused if this machine has too little for all of them."""
        init, shards = self.task.algorithm.memory.init, self.plan.copies("memory")
        items, _ = shapes.produced_like(self.task, self.task.lanes // shards)
        memory = jax.eval_shape(lambda: init(items, shards))
        if self._limited:
            check_fits_in_memory(shards * bytes_of(memory))
        return memory

    def states(self, piece: Piece) -> dict[str, Tree]:
        """What a copy of a piece keeps, by stage; None where an environment does not say."""
        task, lanes = self.task, self.task.lanes // piece.copies
        kept: dict[str, Tree] = {}
        if "env" in piece.stages:
            kept["env"] = None
        if "env" in piece.stages and keeps_state(task.env):
            keys = jax.eval_shape(lambda: per_lane(purpose_key(0, Purpose.ENV), jnp.arange(lanes)))
            kept["env"] = jax.eval_shape(task.env.init, keys)[0]
        if "policy" in piece.stages:
            first = jax.eval_shape(partial(shapes.first_lanes, task), _lane_like(lanes))
            kept["policy"] = (first, shapes.step_like(task, lanes))
        if "memory" in piece.stages:
            kept["memory"] = self.memory
        if "update" in piece.stages:
            kept["update"] = self.learner
        return kept

    # what one message carries

    def message(self, what: str) -> Tree:
        """The tree of one message of a `Route`."""
        task, lanes = self.task, self._policy_lanes
        group = phases(self.plan, task.lanes, task.block, 0)[0][0].lanes
        match what:
            case "step":
                return shapes.step_like(task, group)
            case "action":
                return shapes.row_like(task, _lane_like(group)).action
            case "outcome":
                return shapes.outcome_like(task._replace(lanes=lanes))
            case "summary":
                return self._produced[1]
            case "labelled":
                return self._labelled
            case "feedback":
                return self._gradient[0]
            case "contribution":
                return self._gradient[1]
            case "metrics":
                return self._gradient[1].metrics
            case _:
                return getattr(self, what)

    @cached_property
    def items(self) -> Tree:
        return self._produced[0]

    @cached_property
    def batch(self) -> Tree:
        """A shard's part of a draw [rows, ...]."""
        draw = partial(learning.compute_draw, self.task, part=(0, self.plan.copies("memory")))
        return jax.eval_shape(draw, np.uint32(0), self.memory, np.int32(0), np.int32(0))[0]

    @cached_property
    def variables(self) -> Tree:
        return jax.eval_shape(self.task.algorithm.learning, self.learner)

    @cached_property
    def weights(self) -> Tree:
        return shapes.weights_like(self.task)

    # what these are made from

    @property
    def rows(self) -> int:
        """Rows of a shard's part of a draw."""
        return int(jax.tree.leaves(self.batch)[0].shape[0])

    @property
    def rollout_row(self) -> Row:
        """One step of all lanes of a policy copy."""
        return shapes.row_like(self.task, _lane_like(self._policy_lanes))

    @property
    def _policy_lanes(self) -> int:
        return self.task.lanes // self.plan.copies("policy")

    @cached_property
    def _produced(self) -> tuple[Tree, Tree]:
        return shapes.produced_like(self.task, self._policy_lanes)

    @cached_property
    def _gradient(self) -> tuple[Tree, GradientContribution]:
        made: tuple[Tree, GradientContribution]
        made = self._learn(learning.compute_gradient, "label", "gradient", self._labelled)
        return made

    @cached_property
    def _labelled(self) -> Tree:
        return self._learn(compute_label, "memory", "label", self.batch)

    def _learn(self, compute: Any, maker: str, taker: str, batch: Tree) -> Tree:
        """What a copy of `taker` computes from its share of what copies of `maker` send it."""
        makers, takers = self.plan.copies(maker), self.plan.copies(taker)
        share, parts = route([batch] * makers, takers)[0]
        mine = jax.eval_shape(lambda *parts: take_share(share, parts), *parts)
        one, zero = partial(compute, self.task, part=(0, takers)), np.int32(0)
        return jax.eval_shape(one, np.uint32(0), self.variables, mine, zero, zero)


def _lane_like(lanes: int) -> Tree:
    return jax.eval_shape(lambda: jnp.arange(lanes, dtype=jnp.int32))


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
        """That of several such runs at a time, which share the driver's process."""
        pieces = tuple(piece._replace(copies=rings * piece.copies) for piece in self.pieces)
        processes = 1 + rings * (self.processes - 1)
        each = self.driver + rings * (self.process_bytes - self.driver)
        compiling = self.compiling * (rings if self.processes > 1 else 1)
        return MemoryEstimate(pieces, processes, each, rings * self.rings, self.driver, compiling)

    def warning(self, free: int) -> str:
        """A sentence if it does not fit into `free` bytes, else nothing."""
        most = self.total + self.compiling
        if not free or most <= free:
            return ""
        held = {"processes": self.process_bytes + self.compiling}
        for piece in self.pieces:
            for what, count in piece.holds.items():
                held[what] = held.get(what, 0) + piece.copies * count
        largest = max(held, key=lambda what: held[what])
        fewer = " or fewer seeds" if self.rings > 1 else ""
        return (
            f"This run needs about {size(most)}, but only {size(free)} is free, so it may be "
            f"killed. Most of it is {largest} ({size(held[largest])}). Use "
            f"{_KNOBS.get(largest, 'a smaller network')}{fewer}."
        )


def estimate(task: Task, lowering: Lowering, on: str | None) -> MemoryEstimate:
    """The memory of a run, before anything is made.

    Counted: arrays that last or that each round makes, processes by themselves, and what compiling
    leaves behind. Not counted: what XLA needs while a program runs, and environments outside JAX.
    """
    plan, backend = lowering.plan, registry.find(on)
    model = ShapeModel(task, plan, on)
    pieces = tuple(
        PieceMemory(piece.name, piece.copies, _holds(model, piece)) for piece in plan.pieces
    )
    if backend.own_process:
        pieces = tuple(map(partial(_with_messages, model), plan.pieces, pieces))
    if lowering.kind is Kind.GRADIENT_PARALLEL:
        pieces = tuple(map(partial(_on_devices, lowering.devices), plan.pieces, pieces))
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


def _holds(model: ShapeModel, piece: Piece) -> dict[str, int]:
    stages, plan, held = piece.stages, model.plan, dict[str, int]()
    states = {
        stage: bytes_of(state) for stage, state in model.states(piece).items() if state is not None
    }
    variables = bytes_of(model.variables)
    if _LEARNER & set(stages):
        held["weights"] = variables
    elif "policy" in stages:
        held["weights"] = bytes_of(model.weights)
    if "update" in stages:
        held["optimiser"] = max(0, states["update"] - variables)
    if "gradient" in stages:
        held["gradients"] = variables
    if {"label", "gradient"} & set(stages):
        held["batch"] = bytes_of(model.batch) * plan.copies("memory") // piece.copies
    if "memory" in stages:
        frames = _frames(model.memory)
        held |= {"memory": states["memory"] - frames}
        held |= {"frames": frames} if frames else {}
    if "policy" in stages:
        rows = bytes_of(model.rollout_row) * model.task.algorithm.rollout
        held["rollout"] = rows + bytes_of(model.items) * (1 + plan.lag)
    if "env" in states:
        held["env"] = states["env"]
    return held


def _with_messages(model: ShapeModel, piece: Piece, cost: PieceMemory) -> PieceMemory:
    """With the messages of a round: who makes one keeps it, who takes items copies them first."""
    stages, plan, held = set(piece.stages), model.plan, 0
    if len({"policy", "memory"} & stages) == 1:
        rounds = 1 + plan.lag if "policy" in stages else 1
        held += bytes_of(model.items) * plan.copies("policy") // piece.copies * rounds
    if "memory" in stages and not {"label", "gradient"} & stages:
        held += bytes_of(model.batch)
    return cost._replace(holds=cost.holds | {_MESSAGES: held}) if held else cost


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
