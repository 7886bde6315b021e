"""What is said before a run and after it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rondel.plan import Plan

if TYPE_CHECKING:
    from rondel.run.run import Run


def rows(run: Run) -> list[tuple[str, str]]:
    """The pre-flight: what will run, as (label, text)."""
    setup, ring = run.setup, run.ring
    task, algorithm = setup.task, setup.task.algorithm
    world = setup.env_id.partition(":")[0]
    how = "one fused XLA program" if ring.fused else f"on {setup.options.on}{lag_rule(ring.plan)}"
    held = ring.memory_bytes()
    warmup = algorithm.memory.warmup_rounds
    waits = f", after {warmup} rounds of warm-up" if warmup else ""
    goal = run.limits.until_return
    until = f" or a mean return of {goal:g}" if goal != float("inf") else ""
    since = f" (from {run.steps:,})" if run.steps else ""
    lines = [
        ("algorithm", setup.name),
        ("env", f"{setup.env_id} (world {world}), {task.lanes} lanes in blocks of {task.block}"),
        ("plan", f"{ring.plan}: {how}"),
        ("round", f"{algorithm.rollout} steps a lane, then {algorithm.memory.draws} draws{waits}"),
        ("memory", size(held)),
        ("until", f"{run.limits.steps:,} steps{until}{since}, seed {task.seed}"),
    ]
    if setup.tuned:
        told = ", ".join(f"{name} {value}" for name, value in setup.tuned.items())
        lines.append(("tuned", f"{told} (--no-tuned for the defaults)"))
    lines += [("note", note) for note in run.notes]
    lines.append(("folder", str(run.path)))
    return lines


def lag_rule(plan: Plan) -> str:
    """How old the weights may be that act, in words."""
    if plan.free:
        return f", free, weights at most {plan.lag} rounds old"
    return f", weights {plan.lag} rounds old" if plan.lag else ""


def ending(run: Run, checkpoint: Path) -> str:
    """What a finished run has come to."""
    result = run.result
    done = f"{result['steps']:,} steps in {result['seconds']:.1f} s"
    scored = result["eval_return"]
    shown = f", mean return of greedy episodes {scored:.1f}" if scored is not None else ""
    return f"Done: {done}{shown}. Checkpoint: {checkpoint}"


def size(count: int) -> str:
    """Bytes for a person."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
