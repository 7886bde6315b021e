"""Other plans for a run, as flags that it would accept: it is checked with its lanes and algorithm.

`advice` knows which of them would help.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from math import gcd

from rondel.errors import RondelError
from rondel.execution.backends import registry
from rondel.execution.backends.lowering import lower
from rondel.execution.stages.task import keeps_state
from rondel.plan.parser import parse
from rondel.plan.pieces import Piece
from rondel.plan.plan import Plan
from rondel.run.setup import jax_process
from rondel.run.setup.prepare import Setup, check_plan

_ACTING = ("env", "policy")


def alternative(setup: Setup, purpose: str) -> str:
    """Flags of the first plan for that purpose which this run would accept, or nothing.

    A plan with a range of copies is left as it is.
    """
    found = () if setup.plan.ranged else _candidates(setup, purpose)
    return next(filter(None, (_flags(setup, plan, on) for plan, on in found)), "")


def _candidates(setup: Setup, purpose: str) -> Iterator[tuple[Plan, str | None]]:
    """Plans and their backends, the best first."""
    plan, on, cores = setup.plan, setup.options.on, jax_process.cores()
    backend, acting, pure = registry.find(on), plan.copies("env"), keeps_state(setup.task.env)
    match purpose:
        case "more actors":  # a copy for each core, twice as many where there are other machines
            elsewhere = backend.remote and setup.options.address is not None
            yield from _more_actors(setup, 2 * acting if elsewhere else cores)
        case "no cuts" if plan.cut:
            yield parse("all"), registry.IN_DRIVER
        case "fewer cuts" if len(plan.pieces) > 2 and acting > 1 and not plan.free:
            yield parse(f"actor*{acting} | learner", plan.lag), on
        case "several cores" if str(plan) == "all" and not plan.lag and backend.in_driver:
            if jax_process.configured_threads() == 1:  # else XLA uses all of them
                for n in range(cores, 1, -1):
                    text = f"all*{n}" if pure else f"actor+memory | gradient*{n} | update"
                    yield parse(text), registry.IN_DRIVER
        case "one program" if backend.beside:  # if these copies are not one yet
            if lower(setup.task, plan, in_driver=True, devices=cores).devices > 1:
                yield plan, registry.IN_DRIVER
        case "lag" if len(plan.pieces) > 1 and not plan.free and not plan.lag:
            yield replace(plan, lag=1), on
        case "free" if len(plan.pieces) > 1 and not plan.free:
            yield replace(plan, free=True, lag=max(1, plan.lag)), on


def _more_actors(setup: Setup, most: int) -> Iterator[tuple[Plan, str | None]]:
    """Up to so many copies of what steps environments, the largest number first."""
    plan, on = setup.plan, setup.options.on
    first, *others = plan.pieces
    held = _ACTING if "policy" in first.stages else ("env",)
    rest = [Piece(stages)] if (stages := first.stages[len(held) :]) else []
    if rest and first.copies > 1:
        return
    for copies in range(most, first.copies, -1):
        with suppress(RondelError):  # the copies of neighbours must divide each other
            more = replace(plan, pieces=(Piece(held, copies), *rest, *others))
            yield more, on if registry.find(on).own_process else registry.FOR_CUTS


def _flags(setup: Setup, plan: Plan, on: str | None) -> str:
    """What to change on the command line for that plan, with smaller blocks if it needs them."""
    task, now, flags = setup.task, setup.plan, list[str]()
    each, left = divmod(task.lanes, max(map(plan.copies, _ACTING)))
    blocks = [task.block] if left else [task.block, gcd(task.block, each)]
    block = next((b for b in blocks if _accepts(setup, plan, b, on)), None)
    if block is None:
        return ""
    if changed := str(plan) != str(now):
        flags.append(f'--plan "{plan}"' if plan.cut else f"--plan {plan}")
    if block != task.block:
        flags.append(f"--block {block}")
    if plan.free != now.free:
        flags.append("--free" if plan.free else "--no-free")
    if plan.lag != now.lag:
        flags.append(f"--lag {plan.lag}")
    default = registry.FOR_CUTS if plan.cut else registry.IN_DRIVER
    if on != setup.options.on or (changed and on != default):
        flags.append(f"--on {on}")
    return " ".join(flags)


def _accepts(setup: Setup, plan: Plan, block: int, on: str | None) -> bool:
    task, options = setup.task._replace(block=block), replace(setup.options, on=on)
    try:
        check_plan(task, plan, options, setup.name)
    except RondelError:
        return False
    return True
