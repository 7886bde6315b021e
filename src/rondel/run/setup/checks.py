"""Refusals of runs that can't work, before anything starts."""

from __future__ import annotations

from math import lcm

from rondel.envs.registry import id_without_world, world_of
from rondel.errors import RondelError
from rondel.execution.backends import registry
from rondel.execution.stages import learning
from rondel.execution.stages.memory_limit import bytes_of, check_fits_in_memory
from rondel.execution.stages.task import Task
from rondel.formatting import divisors, join_words, nearest
from rondel.plan.pieces import Piece, error_at, write
from rondel.plan.plan import Plan
from rondel.plan.rules import check_fit, first_fault
from rondel.run.setup.options import Options
from rondel.run.setup.shape_model import ShapeModel
from rondel.spaces import zeros
from rondel.types import Env


def check_size(task: Task, on: str | None, learner_bytes: int) -> None:
    """Refuse a run whose rewards, observations or learner are larger than this machine's memory."""
    if registry.find(on).remote:
        return
    lane = max(4 * task.algorithm.rollout, bytes_of(zeros(task.env.spec.observation)))
    check_fits_in_memory(task.lanes * lane, "A round", "a smaller rollout or fewer lanes")
    check_fits_in_memory(learner_bytes, "The learner", "a smaller network")


def check_plan(task: Task, plan: Plan, options: Options, name: str) -> None:
    """Refuse a plan that this run can't follow."""
    if plan.free and options.scale_rewards:
        raise RondelError(
            "scale_rewards needs all lanes in every round, and a free run takes lanes as they "
            "arrive. Leave out one of the two."
        )
    if task.algorithm.fresh and isinstance(task.env, Env) and not task.env.pure:
        world, bare = world_of(task.env.spec.id), id_without_world(task.env.spec.id)
        on_host = f" Use {world.on_host}:{bare}." if world and world.on_host else ""
        raise RondelError(
            f"{name} starts new episodes in every round, but {task.env.spec.id} can't start them "
            f"inside a program.{on_host}"
        )
    labels = task.algorithm.label is not None
    check_fit(
        plan,
        lanes=task.lanes,
        block=task.block,
        max_lag=task.algorithm.max_lag,
        algorithm=name,
        labels=labels,
    )
    shards = plan.copies("memory")
    if shards == plan.copies("label") == plan.copies("gradient") == 1:
        return
    # a copy sees only its own part of a draw: it could not notice that rows are left over
    rows = shards * ShapeModel(task, plan, options.on).rows
    for stage in ("label", "gradient"):
        # labels are made in whole blocks, and so don't depend on the number of copies
        block = learning.ROWS if labels and stage == "label" else 1
        if not _splits(rows, plan.copies(stage), block):
            raise _uneven(plan, stage, rows, block)


def _splits(rows: int, copies: int, block: int) -> bool:
    """Can copies take equal parts of a batch, in whole blocks? One takes all of it."""
    return copies == 1 or rows % (copies * block) == 0


def _uneven(plan: Plan, stage: str, rows: int, block: int) -> RondelError:
    piece = plan.piece_of(stage)
    index, copies = plan.pieces.index(piece), piece.copies

    def with_copies(n: int) -> list[Piece]:
        pieces = list(plan.pieces)
        pieces[index] = piece._replace(copies=n)
        return pieces

    fits = [n for n in divisors(rows) if _splits(rows, n, block)]
    fits = [n for n in fits if not first_fault(with_copies(n))]
    step = lcm(plan.copies("memory"), copies * block)
    near = nearest([n for n in (rows // step * step, (rows // step + 1) * step) if n], rows)
    blocks = f" in blocks of {block}" if block > 1 else ""
    written = write(plan.pieces)
    return error_at(
        f"{piece} cannot share the {rows} rows of a batch evenly{blocks}. Use "
        f"{join_words(nearest(fits, copies), 'or')} {'copy' if fits[-1] == 1 else 'copies'}, or "
        f"batches of {join_words(near, 'or')} rows.",
        written.text,
        (written.stages[index][0][0], written.copies[index][1]),
    )
