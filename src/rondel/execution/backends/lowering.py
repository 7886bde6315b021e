"""How a plan becomes programs, messages and devices on a backend.

`lower` decides it once, from the task and the plan. The loop, the backends, `explain`, the memory
estimate, the profile and the display read what it decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import jax

from rondel.execution.hostenv.partition import phases
from rondel.execution.stages.task import Task, keeps_state
from rondel.plan.pieces import ORDER, Piece
from rondel.plan.plan import Plan, has_separate_envs
from rondel.types import Env

_LEARNING = ORDER[2:]


class Kind(Enum):
    """What drives the rounds, and what of a round is one program."""

    FUSED = "fused"  # the whole ring is one program, which runs many rounds in a call
    DATA_PARALLEL = "data parallel"  # so are copies of the whole ring, with a device for each
    GRADIENT_PARALLEL = "gradient parallel"  # rounds, whose draws are split over devices
    ROUNDS = "rounds"  # the driver sends each stage its requests, round after round
    ASYNC = "async"  # so it does, with rollouts in the order in which they arrive


class Form(Enum):
    """How often a program runs."""

    CALL = "many rounds in a call"
    ROLLOUT = "once a round, with all its steps"
    STEP = "once a step, from a loop in Python"
    DRAWS = "once a round, with all its draws"
    DRAW = "once a draw"


class Program(NamedTuple):
    """Stages that a copy runs together; with `Form.DRAW` each is a program of its own."""

    stages: tuple[str, ...]
    form: Form


class Route(NamedTuple):
    """Messages that copies of one stage send to copies of another."""

    maker: str
    taker: str  # a stage, or "driver"
    what: str  # see `ShapeModel`
    messages: int  # in a round


@dataclass(frozen=True)
class Lowering:
    """How a plan runs."""

    kind: Kind
    plan: Plan
    devices: int = 1  # of this process, that one program runs on
    in_driver: bool = False  # all copies take turns in the driver's thread
    stackable: bool = False  # rings that differ by their seed alone can be one program
    programs: tuple[tuple[Program, ...], ...] = ()  # of each piece

    @property
    def one_program(self) -> bool:
        """Does one program run many rounds in a call?"""
        return self.kind in (Kind.FUSED, Kind.DATA_PARALLEL)

    @property
    def learns_in_one_program(self) -> bool:
        """Are all draws of a round one program? It also runs, and draws nothing, in a warm-up."""
        forms = [program.form for piece in self.programs for program in piece]
        return Form.CALL in forms or Form.DRAWS in forms

    @property
    def takes_turns(self) -> bool:
        """Do several pieces share the driver's thread, each with programs of its own?"""
        separate = self.kind is not Kind.GRADIENT_PARALLEL and len(self.plan.pieces) > 1
        return self.in_driver and separate

    @property
    def own_rounds(self) -> bool:
        """Is a round what one copy of a free run did, with gradients of its own, as in A3C?"""
        return self.plan.free and self.plan.piece_of("gradient") == self.plan.piece_of("policy")


def lower(task: Task, plan: Plan, in_driver: bool, devices: int | None = None) -> Lowering:
    """Decide how a plan runs on a backend that has all copies in the driver's thread, or elsewhere.

    In the driver copies may be one program on that many devices, by default on all that JAX has.
    """
    whole, parts = len(plan.pieces) == 1, 1
    if in_driver and (keeps_state(task.env) or not whole):
        parts = devices_for(plan)
    if parts > 1 and parts > (jax.local_device_count() if devices is None else devices):
        parts = 1
    kind = Kind.ASYNC if plan.free else Kind.ROUNDS
    if parts > 1:
        kind = Kind.DATA_PARALLEL if whole else Kind.GRADIENT_PARALLEL
    elif isinstance(task.env, Env) and not (plan.cut or plan.lag or plan.free):
        kind = Kind.FUSED
    return Lowering(
        kind,
        plan,
        parts,
        in_driver,
        kind is Kind.FUSED and in_driver and keeps_state(task.env),
        tuple(tuple(_programs(task, plan, piece, kind)) for piece in plan.pieces),
    )


def devices_for(plan: Plan) -> int:
    """How many devices of one process a plan has work for: it copies the whole ring or gradients.

    It does not need an environment, so that devices can be asked for before JAX starts.
    """
    if plan.lag or plan.free or has_separate_envs(plan):
        return 1
    if len(plan.pieces) == 1:
        return plan.pieces[0].copies
    copied = [piece for piece in plan.pieces if piece.copies > 1]
    only_gradients = all({*piece.stages} <= {"label", "gradient"} for piece in copied)
    return plan.copies("gradient") if only_gradients else 1


def _programs(task: Task, plan: Plan, piece: Piece, kind: Kind) -> Iterator[Program]:
    """What a copy of a piece runs."""
    if kind in (Kind.FUSED, Kind.DATA_PARALLEL):
        yield Program(piece.stages, Form.CALL)
        return
    if acts := tuple(stage for stage in piece.stages if stage in ("env", "policy")):
        scanned = len(acts) == 2 and isinstance(task.env, Env)
        yield Program(acts, Form.ROLLOUT if scanned else Form.STEP)
    labels = task.algorithm.label is not None and plan.piece_of("label") == piece
    here = {*piece.stages, *(["label"] if labels else [])}
    if learns := tuple(stage for stage in _LEARNING if stage in here):
        whole = {"memory", "update"} <= here and piece.copies == 1
        at_once = whole or kind is Kind.GRADIENT_PARALLEL
        yield Program(learns, Form.DRAWS if at_once else Form.DRAW)


def routes_of(task: Task, lowering: Lowering) -> Iterator[Route]:
    """What leaves a copy in a round: `loop.rounds` sends it, or one program on several devices."""
    plan, kind = lowering.plan, lowering.kind
    policy, memory, label, gradient, update = map(plan.piece_of, ("policy", *_LEARNING))
    algorithm, draws = task.algorithm, task.algorithm.memory.draws
    own = plan.free and gradient == policy  # then one copy acts and learns in a round
    actors, learners = (1, 1) if own else (policy.copies, gradient.copies)
    between = draws * gradient.copies * (gradient.copies - 1)  # each to all others
    if has_separate_envs(plan):
        copies = [phases(plan, task.lanes, task.block, copy) for copy in range(actors)]
        groups = sum(len(phase) for copy in copies for phase in copy)
        steps = groups * algorithm.rollout
        yield Route("env", "policy", "step", steps + groups * algorithm.fresh)
        yield Route("policy", "env", "action", steps)
    if kind is Kind.GRADIENT_PARALLEL:
        yield Route("gradient", "update", "contribution", between)
        yield Route("gradient", "memory", "feedback", between)
        return
    to_update = actors if policy != update else policy.copies - 1
    if to_update and policy != memory:
        yield Route("policy", "memory", "items", max(policy.copies, memory.copies))
    if to_update:
        yield Route("policy", "update", "summary", to_update * update.copies)
    if memory != label:
        taker = "label" if label != gradient else "gradient"
        yield Route("memory", taker, "batch", draws * max(memory.copies, label.copies))
    if algorithm.label and label != update:
        yield Route("update", "label", "variables", draws if own else label.copies)
    if label != gradient:
        yield Route("label", "gradient", "labelled", draws * max(label.copies, gradient.copies))
    if memory != gradient:
        yield Route("gradient", "memory", "feedback", draws * max(memory.copies, gradient.copies))
    if gradient != update:
        yield Route("update", "gradient", "variables", draws * learners)
        yield Route("gradient", "update", "contribution", draws * learners)
    elif between:
        yield Route("gradient", "update", "contribution", between)
    if to_update and kind is not Kind.DATA_PARALLEL:
        yield Route("update", "policy", "weights", to_update)
    if not lowering.in_driver:
        at_once = memory == gradient == update and update.copies == 1
        yield Route("policy", "driver", "outcome", actors)
        yield Route("update", "driver", "metrics", 1 if at_once else draws)
