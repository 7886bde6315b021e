"""What a run could be told to do otherwise: flags that it would take, checked as a run's own are.

Which of them would help is for `advice` to say. Here is only what this run, with its lanes, blocks
and algorithm, would not be refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd

from rondel.errors import RondelError
from rondel.execution.backends import registry
from rondel.execution.stages.task import keeps_state
from rondel.execution.workers import data_parallel, gradient_parallel
from rondel.plan.parser import parse
from rondel.plan.pieces import Piece
from rondel.plan.plan import Plan
from rondel.run.profiling.run_profile import RunFacts
from rondel.run.setup import jax_process
from rondel.run.setup.checks import check_plan
from rondel.run.setup.memory_shapes import bytes_of
from rondel.run.setup.prepare import Setup
from rondel.spaces import zeros
from rondel.types import Env

ACTING = ("env", "policy")


def facts_of(setup: Setup, fused: bool) -> RunFacts:
    """What matters of a run to what bounds it."""
    plan, options = setup.plan, setup.options
    traced, cores = isinstance(setup.task.env, Env), jax_process.cores()
    where = (str(plan), options.on, setup.env_id, setup.task.lanes, plan.lag, plan.free)
    learns = (setup.task.algorithm.memory.draws, hasattr(setup.config, "batch"))
    knobs = ("epochs", "updates", "updates_per_step")
    passes = [f"--{name.replace('_', '-')}" for name in knobs if hasattr(setup.config, name)]
    more = ("".join(passes[:1]), bytes_of(zeros(setup.task.env.spec.observation)))
    return RunFacts(*where, traced, fused, cores, *learns, dict(_found(setup, cores)), *more)


def _found(setup: Setup, cores: int) -> Iterator[tuple[str, str]]:
    """By what they do: the flags, as they stand on the command line."""
    plan = setup.plan
    if plan.ranged:  # who asks for a range has left it to us
        return
    acting = plan.copies("env")
    backend = registry.find(setup.options.on)
    elsewhere = backend.remote and setup.options.address is not None
    apart = plan.piece_of("env").stages == ("env",)  # then one policy acts for many of them
    wanted = {"actors": 2 * acting if elsewhere else cores, "sleepers": 2 * max(cores, acting)}
    for name, most in wanted.items():
        stages = ("env",) if apart else ACTING
        more = (_placed(setup, _cut(plan, stages, n)) for n in range(most, acting, -1))
        if flags := next(filter(None, more), ""):
            yield name, flags
    if plan.cut and (flags := _placed(setup, parse("all"), whole=True)):
        gone = [f"--{name}" for name in ("free", "lag") if getattr(plan, name)]
        yield "whole", flags + (f" without {' and '.join(gone)}" if gone else "")
    alone = str(plan) == "all" and not plan.lag and backend.fuses_copies
    if alone and jax_process.configured_threads() == 1:  # else XLA shares products among the cores
        pure, stages = keeps_state(setup.task.env), ("gradient",)
        for n in range(cores, 1, -1):
            shared = replace(plan, pieces=(plan.pieces[0]._replace(copies=n),))
            if flags := _placed(setup, shared if pure else _cut(plan, stages, n), whole=True):
                yield "cores", f"{flags} --on {registry.IN_DRIVER}"
                break
    if _can_be_one_program(setup, cores):
        yield "devices", f"--on {registry.IN_DRIVER}"
    if len(plan.pieces) > 2 and acting > 1 and not plan.free:
        fewer = Plan((Piece(ACTING, acting), Piece(("memory", "gradient", "update"))), plan.lag)
        if flags := _placed(setup, fewer):
            yield "fewer", flags
    if len(plan.pieces) > 1 and not plan.free:
        lag, here = max(1, plan.lag), (setup.task.block, setup.options.on)
        if not plan.lag and _fits(setup, replace(plan, lag=lag), *here):
            yield "lag", f"--lag {lag}"
        if _fits(setup, replace(plan, lag=lag, free=True), *here):
            yield "free", f"--free --lag {lag}"
    for name, stage, most in (
        ("gradients", "gradient", 2 * plan.copies("gradient") if elsewhere else 0),
        ("labels", "label", cores if setup.task.algorithm.label else 0),
        ("shards", "memory", 2 if plan.piece_of("memory").stages == ("memory",) else 0),
    ):
        if most > plan.copies(stage) and (flags := _placed(setup, _cut(plan, (stage,), most))):
            yield name, flags


def _can_be_one_program(setup: Setup, cores: int) -> bool:
    """Could the copies of this plan be one program on as many cores, and are they none yet?"""
    task, plan, on = setup.task, setup.plan, setup.options.on
    whole = data_parallel.copies_in(plan) if keeps_state(task.env) else 1
    copies = max(whole, gradient_parallel.parts_in(plan))
    fits = registry.find(on).beside and 1 < copies <= cores
    return fits and _fits(setup, plan, task.block, registry.IN_DRIVER)


def _cut(plan: Plan, stages: tuple[str, ...], copies: int) -> Plan | None:
    """The plan with these stages in so many copies, cut off from others that are there once."""
    pieces: list[Piece] = []
    for piece in plan.pieces:
        held = piece.stages
        if stages == ("label",) and "gradient" in held and "label" not in held:
            at = held.index("gradient")  # it does that stage's work too
            held = (*held[:at], "label", *held[at:])
        mine = [stage for stage in held if stage in stages]
        if not mine:
            pieces.append(piece)
            continue
        if len(mine) < len(held) and piece.copies > 1:
            return None
        first = held.index(mine[0])
        before, after = held[:first], held[first + len(mine) :]
        pieces += [Piece(before)] if before else []
        pieces.append(Piece(tuple(mine), copies))
        pieces += [Piece(after)] if after else []
    try:
        return Plan(tuple(pieces), plan.lag, plan.free)
    except RondelError:
        return None


def _placed(setup: Setup, plan: Plan | None, whole: bool = False) -> str:
    """The flags of a plan that this run would take, with smaller blocks if need be; or nothing."""
    if plan is None:
        return ""
    task, on = setup.task, setup.options.on
    acting = max(map(plan.copies, ACTING))
    smaller = gcd(task.block, task.lanes // acting) if task.lanes % acting == 0 else 0
    for block in dict.fromkeys((task.block, smaller)):
        elsewhere = not whole and not registry.find(on).own_process
        if block and _fits(setup, plan, block, registry.FOR_CUTS if elsewhere else on):
            flags = f'--plan "{plan}"' if plan.cut else f"--plan {plan}"
            flags += f" --block {block}" if block != task.block else ""
            return flags + (f" --on {registry.FOR_CUTS}" if elsewhere else "")
    return ""


def _fits(setup: Setup, plan: Plan, block: int, on: str | None) -> bool:
    """Would this run, with its lanes in such blocks and its copies there, follow that plan?"""
    options = replace(setup.options, on=on)
    try:
        check_plan(setup.task._replace(block=block), plan, options, setup.name)
    except RondelError:
        return False
    return True
