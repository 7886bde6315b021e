"""The lines that `rondel train` prints before a run and after it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rondel.execution.backends import registry
from rondel.execution.backends.lowering import Kind
from rondel.formatting import number, plural, size
from rondel.plan.plan import Plan
from rondel.plan.resources import resources_for
from rondel.run.session.run import Run
from rondel.run.setup import jax_process
from rondel.run.setup.shape_model import MemoryEstimate, PieceMemory

_FAR = 0.05  # of a run's steps


def rows(run: Run, cost: MemoryEstimate, free: int) -> list[tuple[str, str]]:
    """What will run where and what it takes, as (label, text); `free` is memory left."""
    setup, plan, lowering = run.setup, run.ring.plan, run.ring.lowering
    task, algorithm = setup.task, setup.task.algorithm
    world = setup.env_id.partition(":")[0]
    how = f"on {setup.options.on}{lag_rule(plan)}"
    if lowering.one_program:
        several = f" on {lowering.devices} devices" if lowering.devices > 1 else ""
        how = f"one fused XLA program{several}"
    elif lowering.kind is Kind.GRADIENT_PARALLEL:
        how = f"in this process, gradients on {lowering.devices} devices"
    elif not plan.cut:
        how = f"a Python loop around compiled calls{lag_rule(plan)}"
    lanes, steps = plural(task.lanes, "lane"), plural(algorithm.rollout, "step")
    waits = warmup_text(algorithm.memory.warmup_rounds)
    if algorithm.memory.warmup_rounds * algorithm.rollout * task.lanes >= run.limits.steps:
        waits += ". The run ends before that and learns nothing"
    goal = run.limits.until_return
    until = f" or a mean return of {goal:g}" if goal != float("inf") else ""
    since = f" (from {run.steps:,})" if run.steps else ""
    lines = [
        ("algorithm", setup.name),
        ("env", f"{setup.env_id} (world {world}), {lanes} in blocks of {task.block}"),
        ("plan", f"{plan}: {how}"),
        *_placed(run, cost),
        ("round", f"{steps} per lane, then {plural(algorithm.memory.draws, 'draw')}{waits}"),
        ("memory", memory_text(cost, free)),
        ("until", f"{run.limits.steps:,} steps{until}{since}, seed {task.seed}"),
        *tuned_row(setup.tuned),
    ]
    most = task.lanes * algorithm.rollout
    if most > _FAR * run.limits.steps:
        over = f"Runs stop at round boundaries ({most:,} steps): this one may exceed --steps by"
        lines.append(("note", f"{over} up to {most - 1:,}."))
    lines += [("note", note) for note in run.notes]
    return [*lines, ("folder", str(run.path))]


def tuned_row(tuned: dict[str, Any]) -> list[tuple[str, str]]:
    """The row of tuned settings, if there are any."""
    said = ", ".join(f"{name} {value}" for name, value in tuned.items())
    return [("tuned", f"{said} (--no-tuned for the defaults)")] if tuned else []


def resources_text(needs: dict[str, float]) -> str:
    """Resources in words: "2 cpu, 1.0 GiB of memory"."""
    return ", ".join(
        f"{size(int(amount))} of memory" if name == "memory" else f"{amount:g} {name}"
        for name, amount in needs.items()
    )


def warmup_text(rounds: int) -> str:
    """What a warm-up of this many rounds adds to the description of a round."""
    return f", after {plural(rounds, 'round')} of warm-up" if rounds else ""


def _placed(run: Run, cost: MemoryEstimate) -> list[tuple[str, str]]:
    """What runs where, and what each copy holds, a row for each piece."""
    backend, lines = registry.find(run.setup.options.on), list[tuple[str, str]]()
    for i, (held, copies) in enumerate(zip(cost.pieces, run.ring.copies, strict=True)):
        each = "each " if held.copies > 1 else ""
        where = _here(run) if backend.in_driver else f"{each}in {backend.place} of its own"
        if backend.takes_resources:
            asked = resources_for(run.ring.plan, run.setup.options.resources or "")[i]
            nodes = Counter(at for copy in copies if (at := getattr(copy, "address", "")))
            where += f" with {resources_text(asked)}"
            where += "".join(f", {n} on {node}" for node, n in sorted(nodes.items()))
        parts = [f"{what} {size(count)}" for what, count in held.holds.items() if count]
        text = f"{_title(held)} {where}" + (f": {each}{', '.join(parts)}" if parts else "")
        lines.append(("" if lines else "runs", text))
    return lines


def _here(run: Run) -> str:
    """This process, and on how many cores XLA is there."""
    threads = jax_process.configured_threads()
    alone = threads == 1 or run.ring.lowering.devices > 1 or len(run.ring.copies[0]) > 1
    return "in this process" if alone else f"in this process, XLA on {threads} threads"


def _title(held: PieceMemory) -> str:
    return held.name if held.copies == 1 else f"{held.name} x {held.copies}"


def memory_text(cost: MemoryEstimate, free: int) -> str:
    """What a run takes of the machine's memory."""
    compiling = f", plus up to {size(cost.compiling)} while compiling" if cost.compiling else ""
    left = f" ({size(free)} free)" if free else ""
    parts = [(plural(cost.processes, "process", "processes"), cost.process_bytes)]
    parts += [(_title(piece), piece.total) for piece in cost.pieces if piece.total]
    each = ", ".join(f"{name} {size(count)}" for name, count in parts)
    return f"~{size(cost.total)}{compiling}{left}: {each}"


def lag_rule(plan: Plan) -> str:
    """How old the weights may be that act, in words."""
    if plan.free:
        return f", free, weights at most {plural(plan.lag, 'round')} old"
    return f", weights {plural(plan.lag, 'round')} old" if plan.lag else ""


def ending(run: Run, checkpoint: Path) -> str:
    """The result of a finished run."""
    result = run.result
    done = f"{result['steps']:,} steps in {result['seconds']:.1f} s"
    scored = result["eval_return"]
    shown = f", mean return of greedy episodes {number(scored)}" if scored is not None else ""
    again = run.ring.backend.restarts()
    times = f"{plural(again.times, 'time')} ({again.seconds:.1f} s)"
    died = f"\nCopies that died or hung were restarted {times}." if again.times else ""
    return f"Done: {done}{shown}.{died}\nCheckpoint: {checkpoint}"
