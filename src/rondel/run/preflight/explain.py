"""What a plan will do, worked out without doing any of it: `rondel explain`.

Here are the facts, as plain records, from shapes alone; `summary.explained` puts them in words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rondel.execution.backends import registry
from rondel.execution.hostenv.partition import groups, phases
from rondel.execution.hostenv.seeds import Purpose
from rondel.execution.stages import acting, learning
from rondel.execution.stages.rng import per_lane, purpose_key
from rondel.execution.stages.task import Task, keeps_state
from rondel.execution.workers import data_parallel, gradient_parallel
from rondel.formatting import plural
from rondel.plan.pieces import Piece
from rondel.plan.plan import Plan, copy_name, has_separate_envs
from rondel.plan.resources import resources_for
from rondel.run.preflight import render
from rondel.run.preflight.messages import Message, lane_like, messages_of, own_rounds
from rondel.run.setup.memory_shapes import Shard, bytes_of, shard_like
from rondel.run.setup.prepare import Setup, prepare
from rondel.types import Env


@dataclasses.dataclass(frozen=True)
class MessageRoute:
    """What one copy has of the run; each stretch is (first, last)."""

    name: str  # as errors name it
    lanes: tuple[tuple[int, int], ...]
    rows: tuple[int, int] | None  # of each drawn batch


@dataclasses.dataclass(frozen=True)
class PieceReport:
    """A piece of the plan."""

    name: str
    stages: tuple[str, ...]
    copies: int  # of a range, the most
    least: int
    runs: tuple[str, ...]  # what is fused, in words
    holds: dict[str, int | None]  # bytes in a copy by stage; None: an environment doesn't say
    asks: dict[str, float]  # of the machine, for each copy
    shares: tuple[MessageRoute, ...]  # by copy


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What will run. Its `str` is the text that the command prints."""

    algorithm: str
    env: str
    lanes: int
    block: int
    rollout: int  # steps of a round, in every lane
    draws: int  # of a round
    warmup_rounds: int  # that draw nothing
    batch_rows: int  # of a draw, in all copies together
    plan: str
    on: str
    address: str | None
    copies: int
    processes: int  # the driver's among them
    devices: int  # of this process, that one program runs on
    lag: int
    free: bool
    lag_rule: str
    deterministic: bool
    same_as_all: bool  # the numbers are those of the plan `all` with this lag
    numbers: str  # the last two, in words
    fragments: tuple[PieceReport, ...]
    handovers: tuple[Message, ...]
    tuned: dict[str, Any]

    def __str__(self) -> str:
        return render.explained(self)


def explain(
    algorithm: Any, env: Any, *, config: Any = None, tuned: bool = True, **fields: Any
) -> Explanation:
    """What `train` would run, and what would pass between its pieces, without running it.

    Takes what `train` takes of the algorithm, the environment and the plan, and refuses the same.

    >>> print(rondel.explain("ppo", "CartPole-v1", plan="actor*4 | learner", lanes=32))
    """
    return explain_setup(prepare(algorithm, env, config=config, tuned=tuned, fields=fields))


def explain_setup(setup: Setup) -> Explanation:
    """The facts of a setup."""
    task, plan, options = setup.task, setup.plan, setup.options
    memory = task.algorithm.memory
    shard = shard_like(task, plan.copies("memory"), options.on)
    rows = shard.rows * (1 if own_rounds(plan) else plan.copies("memory"))
    backend = registry.find(options.on)
    meshed = backend.fuses_copies and data_parallel.fits(task, plan)
    spreads = backend.fuses_copies and gradient_parallel.fits(plan)
    devices = plan.copies("gradient") if meshed or spreads else 1
    copies = sum(piece.copies for piece in plan.pieces)
    asks = resources_for(plan, options.resources or "")
    return Explanation(
        algorithm=setup.name,
        env=setup.env_id,
        lanes=task.lanes,
        block=task.block,
        rollout=task.algorithm.rollout,
        draws=memory.draws,
        warmup_rounds=memory.warmup_rounds,
        batch_rows=rows,
        plan=str(plan),
        on=str(options.on),
        address=options.address,
        copies=copies,
        processes=copies + 1 if backend.own_process else 1,
        devices=devices,
        lag=plan.lag,
        free=plan.free,
        lag_rule=_lag_rule(plan),
        deterministic=not plan.free,
        same_as_all=not plan.free and plan.copies("memory") == plan.copies("gradient") == 1,
        numbers=_numbers(task, plan, devices),
        fragments=tuple(
            PieceReport(
                piece.name,
                piece.stages,
                piece.copies,
                piece.least or piece.copies,
                tuple(_runs(task, plan, piece, meshed, spreads)),
                _holds(task, piece, shard),
                asks[i] if backend.takes_resources else {backend.unit: 1.0} if backend.unit else {},
                tuple(_share(task, plan, i, copy, rows) for copy in range(piece.copies)),
            )
            for i, piece in enumerate(plan.pieces)
        ),
        handovers=tuple(messages_of(task, plan, shard, bool(backend.place), meshed, spreads)),
        tuned=setup.tuned,
    )


def _lag_rule(plan: Plan) -> str:
    """How old the acting weights are, in words."""
    k, n = plan.lag, plan.copies("policy")
    rounds = plural(k, "round")
    if not plan.free and k == 0:
        return "0: a round acts with the newest weights, so acting and learning take turns"
    if not plan.free:
        return (
            f"{k}, a delay line: round r acts with the weights of version max(0, r - {k}), so "
            f"{rounds} {'is' if k == 1 else 'are'} under way while the learner is busy with the "
            "one before"
        )
    if own_rounds(plan):
        most = n * (k + 1) - 1
        return (
            f"free, at most {plural(most, 'version')} old: a round is one copy's, and makes a "
            "version. A copy starts again when its last round was learned from (may_start). The "
            "learner takes a round when it arrives, unless another would then become older than "
            "that: for this one it waits (may_learn)"
        )
    oldest = "the oldest part" if n == 1 else f"the {n} oldest parts"
    return (
        f"free, at most {rounds} old: a part is what one copy does in a round. One may start, "
        f"with the newest weights, while fewer than {n * (k + 1)} are out (may_start). The "
        f"learner takes {oldest} that arrived, unless another would then become older than that: "
        "for this one it waits (may_learn)"
    )


def _numbers(task: Task, plan: Plan, devices: int) -> str:
    """What the numbers of a run depend on, in words."""
    if plan.free:
        return "not deterministic: they depend on which copy is quicker"
    every = "deterministic and the same on every backend"
    # then XLA has a thread for each, and it splits large sums by their number
    if devices > 1 and jax.default_backend() == "cpu":
        every += f" where XLA has {devices} threads (NPROC={devices})"
    shards, parts = plan.copies("memory"), plan.copies("gradient")
    why = []
    if shards > 1:
        why.append(f"memory draws from {shards} shards")
    if parts > 1:
        why.append(f"gradients are the mean of {parts} parts of a batch")
    if why:
        return f"{every}, but not those of `all`: {' and '.join(why)}"
    lagged = f" --lag {plan.lag}" if plan.lag else ""
    size = phases(plan, task.lanes, task.block, 0)[0][0].lanes
    rounding = ""
    if has_separate_envs(plan) and isinstance(task.env, Env) and size % task.block:
        rounding = f", but for last bits that an env may round otherwise {size} lanes at a time"
    return f"{every}: those of `all{lagged}`{rounding}"


def _runs(task: Task, plan: Plan, piece: Piece, meshed: bool, spreads: bool) -> Iterator[str]:
    """What a fragment makes one program of, and what not."""
    if meshed:
        yield f"all copies: one program on {piece.copies} devices, which runs many rounds in a call"
        return
    stages, traced = piece.stages, isinstance(task.env, Env)
    steps, draws = plural(task.algorithm.rollout, "step"), task.algorithm.memory.draws
    if traced and not (plan.cut or plan.lag):
        yield "the whole ring: one program, which runs many rounds in a call"
        return
    blocks = f"in blocks of {task.block} lanes"
    halves = len(phases(plan, task.lanes, task.block, 0)) == 2
    if stages == ("env",):
        n = len(groups(plan, task.lanes, task.block, 0))
        how = "a program for each step" if traced else "Python environments"
        twice = ", double-buffered: one half steps while the policy acts for the other"
        yield f"env: {how}, in {plural(n, 'group')} of lanes{twice if halves else ''}"
    elif "env" in stages and traced:
        scans = f"one scan per block of {task.block} lanes" if keeps_state(task.env) else blocks
        yield f"env+policy: one program of {steps}, {scans}"
    elif "env" in stages:
        yield f"env+policy: a Python loop of {steps} around a program that acts {blocks}"
    elif "policy" in stages:
        half = ", for one half of its lanes at a time" if halves else ""
        yield f"policy: a Python loop of {steps} around a program that acts {blocks}{half}"
    here = (*stages, "label") if _labels(task, plan, piece) else stages
    learns = [stage for stage in _PROGRAMS if stage in here]
    every = f"all {draws} draws" if draws > 1 else "the one draw"
    if spreads and learns:
        yield (
            f"{'+'.join(learns)}: part of one program for {every} of a round, on "
            f"{gradient_parallel.parts_in(plan)} devices, each with all of memory and its "
            "rows of a batch"
        )
    elif {"memory", "update"} <= set(learns) and piece.copies == 1:
        yield f"{'+'.join(learns)}: one program for {every} of a round"
    elif learns:
        programs = ", ".join(_PROGRAMS[stage] for stage in learns)
        each = ", a program each" if "," in programs else ""
        yield f"{'+'.join(learns)}: {programs}{each}, {plural(draws, 'time')} a round"
        if learns[-2:] == ["gradient", "update"] and piece.copies > 1:
            yield "every copy takes the mean of all copies' gradients, so their updates are equal"


def _labels(task: Task, plan: Plan, piece: Piece) -> bool:
    """Are batches labelled here?"""
    return task.algorithm.label is not None and plan.piece_of("label") == piece


_PROGRAMS = {
    "memory": "draw, rank",
    "label": "labels of a batch",
    "gradient": "gradient of a batch",
    "update": "step of the optimiser",
}


def _holds(task: Task, piece: Piece, shard: Shard) -> dict[str, int | None]:
    """The bytes of the states that a copy keeps, by stage."""
    lanes, held = task.lanes // piece.copies, dict[str, int | None]()
    if "env" in piece.stages:
        held["env"] = None
    if "env" in piece.stages and keeps_state(task.env):
        keys = jax.eval_shape(lambda: per_lane(purpose_key(0, Purpose.ENV), jnp.arange(lanes)))
        held["env"] = bytes_of(jax.eval_shape(task.env.init, keys)[0])
    if "policy" in piece.stages:
        kept = jax.eval_shape(partial(acting.first_lanes, task), lane_like(lanes))
        held["policy"] = bytes_of((kept, acting.step_like(task, lanes)))
    if "memory" in piece.stages:
        held["memory"] = bytes_of(shard.memory)
    if "update" in piece.stages:
        held["update"] = bytes_of(
            jax.eval_shape(partial(learning.init_learner, task), np.uint32(0))
        )
    return held


def _share(task: Task, plan: Plan, index: int, copy: int, rows: int) -> MessageRoute:
    """The lanes and the rows of a batch that a copy has."""
    piece = plan.pieces[index]
    each, lanes = task.lanes // piece.copies, list[tuple[int, int]]()
    as_they_come = plan.free and piece.copies > 1  # then a shard takes whichever lanes there are
    if piece.stages == ("env",):
        for group in groups(plan, task.lanes, task.block, copy):
            end = group.first_lane + group.lanes - 1
            if lanes and lanes[-1][1] == group.first_lane - 1:
                lanes[-1] = (lanes[-1][0], end)
            else:
                lanes.append((group.first_lane, end))
    elif "policy" in piece.stages or ("memory" in piece.stages and not as_they_come):
        lanes.append((copy * each, (copy + 1) * each - 1))
    mine = None
    if own_rounds(plan) and "gradient" in piece.stages:
        mine = (0, rows - 1)
    elif {"memory", "label", "gradient"} & set(piece.stages):
        part = rows // piece.copies
        mine = (copy * part, (copy + 1) * part - 1)
    return MessageRoute(copy_name(plan, index, copy), tuple(lanes), mine)
