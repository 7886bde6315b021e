"""The facts of `rondel explain`: what a plan will do, found from shapes without running it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax

from rondel.execution.backends import registry
from rondel.execution.backends.lowering import Form, Kind, Lowering, Program, Route, routes_of
from rondel.execution.hostenv.partition import groups, phases
from rondel.execution.stages.task import Task, bytes_of, keeps_state, without_keys
from rondel.formatting import plural
from rondel.plan.pieces import Piece
from rondel.plan.plan import Plan, copy_name, has_separate_envs
from rondel.plan.resources import resources_for
from rondel.run.preflight.explanation import CopyShare, Explanation, Leaf, Message, PieceReport
from rondel.run.setup.prepare import Setup, prepare
from rondel.run.setup.shape_model import ShapeModel
from rondel.types import Env

_PROGRAMS = {
    "memory": "draw, rank",
    "label": "labels of a batch",
    "gradient": "gradient of a batch",
    "update": "optimiser step",
}


def explain(
    algorithm: Any, env: Any, *, config: Any = None, tuned: bool = True, **fields: Any
) -> Explanation:
    """What `train` would run, and the messages between its pieces, without running it.

    Takes the arguments of `train` for the algorithm, the environment and the plan, and refuses the
    same.

    >>> print(rondel.explain("ppo", "CartPole-v1", plan="actor*4 | learner", lanes=32))
    """
    return explain_setup(prepare(algorithm, env, config=config, tuned=tuned, fields=fields))


def explain_setup(setup: Setup) -> Explanation:
    """The facts of a setup."""
    task, plan, options, lowering = setup.task, setup.plan, setup.options, setup.lowering
    memory, shapes = task.algorithm.memory, ShapeModel(task, plan, options.on)
    rows = shapes.rows * (1 if lowering.own_rounds else plan.copies("memory"))
    backend = registry.find(options.on)
    copies = sum(piece.copies for piece in plan.pieces)
    needs = resources_for(plan, options.resources or "")
    if not backend.takes_resources:
        needs = ({backend.unit: 1.0} if backend.unit else {},) * len(plan.pieces)
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
        devices=lowering.devices,
        lag=plan.lag,
        free=plan.free,
        lag_rule=_lag_rule(lowering),
        deterministic=not plan.free,
        same_as_all=not plan.free and plan.copies("memory") == plan.copies("gradient") == 1,
        numbers=_numbers(task, lowering),
        pieces=tuple(
            PieceReport(
                piece.name,
                piece.stages,
                piece.copies,
                piece.least or piece.copies,
                tuple(text for one in programs for text in _runs(task, lowering, piece, one)),
                {k: None if v is None else bytes_of(v) for k, v in shapes.states(piece).items()},
                needs[i],
                tuple(_share(task, lowering, i, copy, rows) for copy in range(piece.copies)),
            )
            for i, (piece, programs) in enumerate(zip(plan.pieces, lowering.programs, strict=True))
        ),
        messages=messages_of(lowering, shapes),
        tuned=setup.tuned,
    )


def _lag_rule(lowering: Lowering) -> str:
    """How old the acting weights are, in words."""
    plan = lowering.plan
    k, n = plan.lag, plan.copies("policy")
    if not plan.free and k == 0:
        return "0: each round acts with the newest weights, so acting and learning alternate"
    if not plan.free:
        return (
            f"{k}: a fixed delay. Round r acts with the weights of version max(0, r - {k}), so "
            f"acting is {plural(k, 'round')} ahead of the learner"
        )
    if lowering.own_rounds:
        most = n * (k + 1) - 1
        return (
            f"free: weights are at most {plural(most, 'version')} old. Each round of a copy makes "
            "a version. It is learned from on arrival, or waits if another would become too old"
        )
    oldest = "the oldest part" if n == 1 else f"the {n} oldest parts"
    return (
        f"free: weights are at most {plural(k, 'round')} old. The learner takes {oldest} that "
        "arrived, or waits if another would become too old"
    )


def _numbers(task: Task, lowering: Lowering) -> str:
    """What the numbers of a run depend on, in words."""
    plan = lowering.plan
    if plan.free:
        return "not deterministic: they depend on which copy is faster"
    every = "deterministic and the same on every backend"
    # then XLA has a thread for each, and it splits large sums by their number
    if lowering.devices > 1 and jax.default_backend() == "cpu":
        every += f" if XLA has {lowering.devices} threads (NPROC={lowering.devices})"
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
        rounding = f", except that an env may round the last bit differently with {size} lanes"
    return f"{every}: those of `all{lagged}`{rounding}"


def _runs(task: Task, lowering: Lowering, piece: Piece, program: Program) -> Iterator[str]:
    """What a piece runs as one program, in words."""
    plan, (stages, form) = lowering.plan, program
    steps, draws = plural(task.algorithm.rollout, "step"), task.algorithm.memory.draws
    name, blocks = "+".join(stages), f"in blocks of {task.block} lanes"
    every = f"all {draws} draws" if draws > 1 else "the one draw"
    halves = len(phases(plan, task.lanes, task.block, 0)) == 2
    if form is Form.CALL and lowering.devices > 1:
        yield f"all copies: one program on {lowering.devices} devices, many rounds per call"
    elif form is Form.CALL:
        yield "the whole ring: one program, many rounds per call"
    elif form is Form.ROLLOUT:
        scans = f"one scan per block of {task.block} lanes" if keeps_state(task.env) else blocks
        yield f"{name}: one program of {steps}, {scans}"
    elif stages == ("env",):
        n = plural(len(groups(plan, task.lanes, task.block, 0)), "group")
        how = "a program for each step" if isinstance(task.env, Env) else "Python environments"
        twice = ", double-buffered: one half steps while the policy acts for the other"
        yield f"env: {how}, in {n} of lanes{twice if halves else ''}"
    elif form is Form.STEP:
        half = ", for one half of its lanes at a time" if halves else ""
        yield f"{name}: a Python loop of {steps} around a program that acts {blocks}{half}"
    elif form is Form.DRAWS and lowering.devices > 1:
        yield (
            f"{name}: part of one program for {every} of a round, on {lowering.devices} devices, "
            "each with all of memory and its rows of a batch"
        )
    elif form is Form.DRAWS:
        yield f"{name}: one program for {every} of a round"
    else:
        programs = ", ".join(_PROGRAMS[stage] for stage in stages)
        each = ", a program each" if "," in programs else ""
        yield f"{name}: {programs}{each}, {plural(draws, 'time')} a round"
        if stages[-2:] == ("gradient", "update") and piece.copies > 1:
            yield "copies average their gradients, so their updates are equal"


def _share(task: Task, lowering: Lowering, index: int, copy: int, rows: int) -> CopyShare:
    """The lanes and the rows of a batch that a copy has."""
    plan: Plan = lowering.plan
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
    if lowering.own_rounds and "gradient" in piece.stages:
        mine = (0, rows - 1)
    elif {"memory", "label", "gradient"} & set(piece.stages):
        part = rows // piece.copies
        mine = (copy * part, (copy + 1) * part - 1)
    return CopyShare(copy_name(plan, index, copy), tuple(lanes), mine)


def messages_of(lowering: Lowering, shapes: ShapeModel) -> tuple[Message, ...]:
    """What leaves a copy in a round, in the order of the ring."""
    every = (_message(route, shapes) for route in routes_of(shapes.task, lowering))
    # inside one program nothing is exchanged for an empty tree
    keeps_empty = lowering.kind is not Kind.GRADIENT_PARALLEL
    return tuple(message for message in every if message.leaves or keeps_empty)


def _message(route: Route, shapes: ShapeModel) -> Message:
    tree = jax.eval_shape(without_keys, shapes.message(route.what))
    leaves = tuple(
        Leaf(
            jax.tree_util.keystr(path, simple=True, separator="/"),
            x.dtype.name,
            x.shape,
            x.size * x.dtype.itemsize,
        )
        for path, x in jax.tree_util.tree_flatten_with_path(tree)[0]
    )
    size = sum(leaf.bytes for leaf in leaves)
    maker, taker, what, messages = route
    return Message(maker, taker, what, leaves, size, messages, size * messages)
