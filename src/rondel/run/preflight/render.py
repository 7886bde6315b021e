"""What is said before a run and after it."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rondel.execution.backends import registry
from rondel.formatting import plural, size
from rondel.plan.plan import Plan
from rondel.plan.resources import resources_for

if TYPE_CHECKING:
    from rondel.run.preflight.explain import Explanation, PieceReport
    from rondel.run.preflight.memory_estimate import MemoryEstimate, PieceMemory
    from rondel.run.preflight.messages import Message
    from rondel.run.session.run import Run

_COLUMNS = 80
_KEPT = "\N{NO-BREAK SPACE}"  # where no line ends
_FAR = 0.05  # of a run's steps
_FEW = 8  # arrays of a tree, or copies, that are listed one by one


def rows(run: Run, cost: MemoryEstimate, room: int) -> list[tuple[str, str]]:
    """The pre-flight: what will run where, and its cost, as (label, text); `room` was free."""
    setup, ring = run.setup, run.ring
    task, algorithm = setup.task, setup.task.algorithm
    world = setup.env_id.partition(":")[0]
    how = f"on {setup.options.on}{lag_rule(ring.plan)}"
    if ring.fused:
        copies = ring.plan.pieces[0].copies
        how = "one fused XLA program" + (f" on {copies} devices" if copies > 1 else "")
    elif ring.spreads:
        how = f"in this process, gradients on {ring.plan.copies('gradient')} of its devices"
    elif not ring.plan.cut:
        how = f"a Python loop around compiled calls{lag_rule(ring.plan)}"
    lanes, steps = plural(task.lanes, "lane"), plural(algorithm.rollout, "step")
    waits = _waits(algorithm.memory.warmup_rounds)
    if algorithm.memory.warmup_rounds * algorithm.rollout * task.lanes >= run.limits.steps:
        waits += ", longer than the whole run: nothing will be learned"
    goal = run.limits.until_return
    until = f" or a mean return of {goal:g}" if goal != float("inf") else ""
    since = f" (from {run.steps:,})" if run.steps else ""
    lines = [
        ("algorithm", setup.name),
        ("env", f"{setup.env_id} (world {world}), {lanes} in blocks of {task.block}"),
        ("plan", f"{ring.plan}: {how}"),
        *_placed(run, cost),
        ("round", f"{steps} a lane, then {plural(algorithm.memory.draws, 'draw')}{waits}"),
        ("memory", _taken(cost, room)),
        ("until", f"{run.limits.steps:,} steps{until}{since}, seed {task.seed}"),
    ]
    if setup.tuned:
        told = ", ".join(f"{name} {value}" for name, value in setup.tuned.items())
        lines.append(("tuned", f"{told} (--no-tuned for the defaults)"))
    lines += [("note", note) for note in (*_beyond(run), *run.notes)]
    lines.append(("folder", str(run.path)))
    return lines


def _beyond(run: Run) -> list[str]:
    """How far a run may go past its steps, where that is much of them: it ends with a round."""
    most = run.setup.task.lanes * run.setup.task.algorithm.rollout
    if most <= _FAR * run.limits.steps:
        return []
    return [
        f"it ends with a whole round, of up to {most:,} steps, and so may do up to {most - 1:,} "
        f"more than {run.limits.steps:,}"
    ]


def _placed(run: Run, cost: MemoryEstimate) -> list[tuple[str, str]]:
    """What runs where, and what each copy holds, a row for each piece."""
    backend, lines = registry.find(run.setup.options.on), list[tuple[str, str]]()
    asks = resources_for(run.ring.plan, run.setup.options.resources or "")
    for held, copies, asked in zip(cost.pieces, run.ring.copies, asks, strict=True):
        each = "each " if held.copies > 1 else ""
        where = f"{each}in {backend.place} of its own" if backend.place else _here(run)
        if backend.takes_resources:
            nodes = Counter(at for copy in copies if (at := getattr(copy, "address", "")))
            where += f" with {_asked(asked)}"
            where += "".join(f", {n} on {node}" for node, n in sorted(nodes.items()))
        parts = [f"{what} {size(count)}" for what, count in held.holds.items() if count]
        text = f"{_title(held)} {where}" + (f": {each}{', '.join(parts)}" if parts else "")
        lines.append(("" if lines else "runs", text))
    return lines


def _here(run: Run) -> str:
    """This process, and on how many cores XLA is there."""
    from rondel.run.setup import jax_process  # who shows a run need not wait for jax

    threads = jax_process.configured_threads()
    alone = threads == 1 or run.ring.spreads or len(run.ring.copies[0]) > 1
    return "in this process" if alone else f"in this process, XLA on {threads} threads"


def _title(held: PieceMemory) -> str:
    return held.name if held.copies == 1 else f"{held.name} x {held.copies}"


def _taken(cost: MemoryEstimate, room: int) -> str:
    """What all of it takes of the machine's memory."""
    taken = f"about {size(cost.total)}"
    if cost.compiling:
        taken += f", up to {size(cost.compiling)} more if its programs are not compiled yet"
    there = f"{',' if cost.compiling else ''} of {size(room)} that are free here" if room else ""
    parts = [(plural(cost.processes, "process", "processes"), cost.process_bytes)]
    parts += [(_title(piece), piece.total) for piece in cost.pieces if piece.total]
    each = ", ".join(f"{name} {size(count)}" for name, count in parts)
    return f"{taken}{there}: {each}"


def _waits(rounds: int) -> str:
    return f", after {plural(rounds, 'round')} of warm-up" if rounds else ""


def lag_rule(plan: Plan) -> str:
    """How old the weights may be that act, in words."""
    if plan.free:
        return f", free, weights at most {plural(plan.lag, 'round')} old"
    return f", weights {plural(plan.lag, 'round')} old" if plan.lag else ""


def ending(run: Run, checkpoint: Path) -> str:
    """What a finished run has come to."""
    result = run.result
    done = f"{result['steps']:,} steps in {result['seconds']:.1f} s"
    scored = result["eval_return"]
    shown = f", mean return of greedy episodes {scored:.1f}" if scored is not None else ""
    again = run.ring.backend.restarts()
    died = (
        f"\nCopies that died or hung were started again {plural(again.times, 'time')}, which took "
        f"{again.seconds:.1f} s of it."
        if again.times
        else ""
    )
    return f"Done: {done}{shown}.{died}\nCheckpoint: {checkpoint}"


def explained(facts: Explanation) -> str:
    """What would run, for a person: at most 80 columns, no colours."""
    waits, lanes = _waits(facts.warmup_rounds), plural(facts.lanes, "lane")
    lines = [
        *_wrapped(f"{facts.algorithm} on {facts.env}, {lanes} in blocks of {facts.block}", 0),
        "",
        *_labelled("plan", facts.plan),
        *_labelled("on", _place(facts)),
        *_labelled("lag", facts.lag_rule),
        *_labelled("numbers", facts.numbers),
        *_labelled(
            "round",
            f"{plural(facts.rollout, 'step')} a lane, then {plural(facts.draws, 'draw')} of "
            f"{plural(facts.batch_rows, 'row')}{waits}",
        ),
    ]
    if facts.tuned:
        told = ", ".join(f"{name} {value}" for name, value in facts.tuned.items())
        lines += _labelled("tuned", f"{told} (--no-tuned for the defaults)")
    for fragment in facts.fragments:
        lines += ["", *_fragment(fragment, facts)]
    lines += ["", *_handed_over(facts.handovers)]
    return "\n".join(lines)


def _place(facts: Explanation) -> str:
    backend = registry.find(facts.on)
    many = f"each of {facts.copies} copies" if facts.copies > 1 else "its one copy"
    if any(fragment.least < fragment.copies for fragment in facts.fragments):
        many = f"each of up to {facts.copies} copies"
    if facts.devices > 1:
        return f"{facts.on}: in this process, on {facts.devices} devices"
    if not backend.place:
        return f"{facts.on}: all in this thread"
    if not backend.own_process:
        return f"{facts.on}: {backend.place} for {many}, in this process"
    if not backend.takes_resources:
        return f"{facts.on}: {facts.processes}, the driver and one for {many}"
    where = f"the cluster at {facts.address}" if facts.address else "a cluster that is started here"
    most = _in_all(facts, [fragment.copies for fragment in facts.fragments])
    least = _in_all(facts, [fragment.least for fragment in facts.fragments])
    asks = f"in all {most}"
    if least != most:
        asks = f"{least} at the least, {most} at the most, as nodes come and go"
    return f"{facts.on}: {backend.place} for {many}, on {where}; {asks}"


def _in_all(facts: Explanation, copies: list[int]) -> str:
    """What so many copies of each fragment ask for together."""
    total: dict[str, float] = {}
    for fragment, number in zip(facts.fragments, copies, strict=True):
        for name, amount in fragment.asks.items():
            total[name] = total.get(name, 0.0) + number * amount
    return _asked(total)


def _asked(asks: dict[str, float]) -> str:
    said = [
        f"{size(int(amount))} of memory" if name == "memory" else f"{amount:g} {name}"
        for name, amount in asks.items()
    ]
    return ", ".join(said)


def _fragment(fragment: PieceReport, facts: Explanation) -> list[str]:
    copies = f", {fragment.copies} copies" if fragment.copies > 1 else ""
    if fragment.least < fragment.copies:
        copies = f", {fragment.least} to {fragment.copies} copies"
    stages = "+".join(fragment.stages)
    lines = [f"{fragment.name}{copies}" + (f": {stages}" if stages != fragment.name else "")]
    for i, run in enumerate(fragment.runs):
        lines += _labelled("" if i else "runs", run, 2)
    lanes = ["+".join(_stretch(s) for s in share.lanes) for share in fragment.shares]
    if any(lanes):
        lines += _labelled("lanes", _listed(lanes), 2)
    elif "memory" in fragment.stages:
        share = facts.lanes // fragment.copies
        lines += _labelled("lanes", f"{share} in each copy, whichever arrive first", 2)
    rows = [_stretch(share.rows) for share in fragment.shares if share.rows]
    if rows:
        own = len(rows) > 1 and len(set(rows)) == 1
        text = f"{rows[0]} of batches of its own" if own else f"{_listed(rows)} of each drawn batch"
        lines += _labelled("rows", text, 2)
    held = [
        f"{stage} {'an unknown size' if amount is None else size(amount)}"
        for stage, amount in fragment.holds.items()
    ]
    each = ", each copy" if fragment.copies > 1 else ""
    lines += _labelled("holds", ", ".join(held) + each if held else "nothing between calls", 2)
    if fragment.asks:
        lines += _labelled("asks", _asked(fragment.asks) + each, 2)
    return lines


def _stretch(ends: tuple[int, int]) -> str:
    first, last = ends
    return f"{first}" if first == last else f"{first}-{last}"


def _listed(parts: Sequence[str]) -> str:
    """The parts by copy; not all of many."""
    some = [*parts[: _FEW - 1], "…", parts[-1]] if len(parts) > _FEW else parts
    return " | ".join(some)


def _handed_over(handovers: Sequence[Message]) -> list[str]:
    if not handovers:
        return ["Nothing is handed over: all of it is in one place."]
    lines = [f"{'handed over in a round':44}{'a message':>12}{'messages':>10}{'in all':>12}"]
    for one in handovers:
        way = f"  {one.maker} -> {one.taker}"
        lines.append(
            f"{way:24}{one.what:20}{size(one.message_bytes):>12}{one.messages:>10,}"
            f"{size(one.round_bytes):>12}"
        )
        lines += _wrapped(_arrays(one), 6)
    total = sum(one.round_bytes for one in handovers)
    messages = sum(one.messages for one in handovers)
    lines.append(f"{'  all of it':56}{messages:>10,}{size(total):>12}")
    return lines


def _arrays(one: Message) -> str:
    """The arrays of a message; of many, only the biggest."""
    leaves = one.leaves
    if not leaves:
        return "empty"
    many = len(leaves) > _FEW
    shown = sorted(leaves, key=lambda leaf: -leaf.bytes)[:3] if many else leaves
    said = [f"{leaf.name} {leaf.dtype}{list(leaf.shape)}".strip() for leaf in shown]
    said = [leaf.replace(" ", _KEPT) for leaf in said]
    start = f"{len(leaves)} arrays, the biggest: " if many else ""
    return start + ", ".join(said)


def _labelled(label: str, text: str, indent: int = 0) -> list[str]:
    first, *more = _wrapped(text, 10)
    return [f"{' ' * indent}{label:{10 - indent}}{first.strip()}", *more]


def _wrapped(text: str, indent: int) -> list[str]:
    blank = " " * indent
    lines = textwrap.wrap(
        text.replace(" - ", f"{_KEPT}-{_KEPT}"),
        _COLUMNS,
        initial_indent=blank,
        subsequent_indent=blank,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [line.replace(_KEPT, " ") for line in lines]
