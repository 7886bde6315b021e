"""The programs of a worker, and where it keeps its states: a plain record for each kind of plan."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax

from rondel.execution.stages import acting, initial, labelling, learning, shapes
from rondel.execution.stages.peers import WHOLE, Part, average
from rondel.execution.stages.task import Task, jit_computed_leaves
from rondel.execution.workers.fused import fused_program
from rondel.types import Tree

Program: TypeAlias = Callable[..., Any]


def _as_it_is(name: str, tree: Tree) -> Tree:
    del name
    return tree


class Programs(NamedTuple):
    """Programs by request; what a program donates is never handed out."""

    init_learner: Program
    init_lanes: Program
    init_memory: Program
    first_step: Program
    rollout: Program
    start_round: Program
    act_keys: Program
    act: Program
    items: Program
    add: Program
    draw: Program
    rank: Program
    label: Program
    gradient: Program
    average: Program
    learn: Program
    acting: Program
    learning: Program
    absorb: Program
    update: Program
    compute_rounds: Program
    # a state by name: put it on its devices; to and from what a checkpoint holds
    place: Callable[[str, Tree], Tree] = _as_it_is
    export: Callable[[str, Tree], Tree] = _as_it_is
    load: Callable[[str, Tree], Tree] = _as_it_is
    memories: int = 1  # how often memory is kept, on as many devices


def compile_programs(task: Task, lanes: int, part: Part = WHOLE) -> Programs:
    """Programs of one copy on one device; each is compiled when it first runs."""
    algorithm = task.algorithm

    def init_memory() -> Tree:
        return algorithm.memory.init(shapes.produced_like(task, lanes)[0], part[1])

    # Only memory is donated: everything else may have been handed out, as it is.
    return Programs(
        init_learner=initial.learner_initialiser(task),
        init_lanes=jax.jit(partial(shapes.first_lanes, task)),
        init_memory=jax.jit(init_memory),
        first_step=initial.episode_starter(task),
        rollout=jax.jit(partial(acting.compute_rollout, task)),
        start_round=jax.jit(partial(acting.start_round, task)),
        act_keys=jax.jit(partial(acting.act_keys, task)),
        act=jax.jit(partial(acting.compute_action_at, task)),
        items=jax.jit(partial(acting.compute_items, task)),
        add=jax.jit(partial(learning.compute_add, task, part=part), donate_argnums=1),
        draw=jax.jit(partial(learning.compute_draw, task, part=part)),
        rank=jax.jit(algorithm.memory.rank, donate_argnums=0),
        label=jax.jit(partial(labelling.compute_label, task, part=part)),
        gradient=jax.jit(partial(learning.compute_gradient, task, part=part)),
        average=jax.jit(average),
        learn=jax.jit(partial(learning.compute_learning, task), donate_argnums=2),
        acting=jit_computed_leaves(algorithm.acting),
        learning=jit_computed_leaves(algorithm.learning),
        absorb=jit_computed_leaves(algorithm.absorb),
        update=jax.jit(algorithm.update),
        compute_rounds=jax.jit(fused_program(task), donate_argnums=2),
    )
