"""What a plan will do: the facts that `rondel explain` finds, and their text."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rondel.execution.backends import registry
from rondel.formatting import plural, size, wrapped
from rondel.run.preflight.render import resources_text, tuned_row, warmup_text

_KEPT = "\N{NO-BREAK SPACE}"  # where no line ends
_FEW = 8  # arrays of a tree, or copies, that are listed one by one


@dataclasses.dataclass(frozen=True)
class CopyShare:
    """What one copy has of the run; each range is (first, last)."""

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
    runs: tuple[str, ...]  # what is one program, in words
    holds: dict[str, int | None]  # bytes of a copy by stage; None: an environment doesn't say
    needs: dict[str, float]  # resources of the machine, per copy
    shares: tuple[CopyShare, ...]  # by copy


@dataclasses.dataclass(frozen=True)
class Leaf:
    """An array of a tree."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclasses.dataclass(frozen=True)
class Message:
    """What copies of one stage send to copies of another: a message is one tree for one copy."""

    maker: str
    taker: str
    what: str
    leaves: tuple[Leaf, ...]  # of a message
    message_bytes: int
    messages: int  # in a round
    round_bytes: int


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
    pieces: tuple[PieceReport, ...]
    messages: tuple[Message, ...]
    tuned: dict[str, Any]

    def __str__(self) -> str:
        """What would run, for a person: at most 80 columns, no colours."""
        return "\n".join(_page(self))


def _page(facts: Explanation) -> list[str]:
    waits, lanes = warmup_text(facts.warmup_rounds), plural(facts.lanes, "lane")
    lines = [
        *wrapped(f"{facts.algorithm} on {facts.env}, {lanes} in blocks of {facts.block}"),
        "",
        *_labelled("plan", facts.plan),
        *_labelled("on", _place(facts)),
        *_labelled("lag", facts.lag_rule),
        *_labelled("numbers", facts.numbers),
        *_labelled(
            "round",
            f"{plural(facts.rollout, 'step')} per lane, then {plural(facts.draws, 'draw')} of "
            f"{plural(facts.batch_rows, 'row')}{waits}",
        ),
    ]
    for row in tuned_row(facts.tuned):
        lines += _labelled(*row)
    for piece in facts.pieces:
        lines += ["", *_piece(piece, facts)]
    return [*lines, "", *_messages(facts.messages)]


def _place(facts: Explanation) -> str:
    backend = registry.find(facts.on)
    many = f"each of {facts.copies} copies" if facts.copies > 1 else "its one copy"
    if any(piece.least < piece.copies for piece in facts.pieces):
        many = f"each of up to {facts.copies} copies"
    if facts.devices > 1:
        return f"{facts.on}: in this process, on {facts.devices} devices"
    if backend.in_driver:
        return f"{facts.on}: everything in this thread"
    if not backend.own_process:
        return f"{facts.on}: {backend.place} for {many}, in this process"
    if not backend.takes_resources:
        return f"{facts.on}: {facts.processes}, the driver and one for {many}"
    where = f"the cluster at {facts.address}" if facts.address else "a cluster started here"
    most = _needs_of_all(facts, [piece.copies for piece in facts.pieces])
    least = _needs_of_all(facts, [piece.least for piece in facts.pieces])
    needs = f"needs {most}"
    if least != most:
        needs = f"needs at least {least} and at most {most}, as nodes come and go"
    return f"{facts.on}: {backend.place} for {many}, on {where}; {needs}"


def _needs_of_all(facts: Explanation, copies: list[int]) -> str:
    """The resources that these numbers of copies need together."""
    total: dict[str, float] = {}
    for piece, number in zip(facts.pieces, copies, strict=True):
        for name, amount in piece.needs.items():
            total[name] = total.get(name, 0.0) + number * amount
    return resources_text(total)


def _piece(piece: PieceReport, facts: Explanation) -> list[str]:
    copies = f", {piece.copies} copies" if piece.copies > 1 else ""
    if piece.least < piece.copies:
        copies = f", {piece.least} to {piece.copies} copies"
    stages = "+".join(piece.stages)
    lines = [f"{piece.name}{copies}" + (f": {stages}" if stages != piece.name else "")]
    for i, run in enumerate(piece.runs):
        lines += _labelled("" if i else "runs", run, 2)
    lanes = ["+".join(_range(ends) for ends in share.lanes) for share in piece.shares]
    if any(lanes):
        lines += _labelled("lanes", _listed(lanes), 2)
    elif "memory" in piece.stages:
        share = facts.lanes // piece.copies
        lines += _labelled("lanes", f"{share} per copy, in order of arrival", 2)
    rows = [_range(share.rows) for share in piece.shares if share.rows]
    if rows:
        own = len(rows) > 1 and len(set(rows)) == 1
        text = f"{rows[0]} of its own batches" if own else f"{_listed(rows)} of each batch"
        lines += _labelled("rows", text, 2)
    held = [
        f"{stage} {'of unknown size' if amount is None else size(amount)}"
        for stage, amount in piece.holds.items()
    ]
    each = " per copy" if piece.copies > 1 else ""
    lines += _labelled("holds", ", ".join(held) + each if held else "nothing between calls", 2)
    if piece.needs:
        lines += _labelled("needs", resources_text(piece.needs) + each, 2)
    return lines


def _range(ends: tuple[int, int]) -> str:
    first, last = ends
    return f"{first}" if first == last else f"{first}-{last}"


def _listed(parts: Sequence[str]) -> str:
    """The parts by copy; not all of many."""
    some = [*parts[: _FEW - 1], "…", parts[-1]] if len(parts) > _FEW else parts
    return " | ".join(some)


def _messages(messages: Sequence[Message]) -> list[str]:
    if not messages:
        return ["No messages: everything is in one place."]
    lines = [f"{'messages of a round':44}{'size':>12}{'number':>10}{'total':>12}"]
    for one in messages:
        way = f"  {one.maker} -> {one.taker}"
        lines.append(
            f"{way:24}{one.what:20}{size(one.message_bytes):>12}{one.messages:>10,}"
            f"{size(one.round_bytes):>12}"
        )
        lines += wrapped(_arrays(one), 80, " " * 6, " " * 6)
    total = sum(one.round_bytes for one in messages)
    number = sum(one.messages for one in messages)
    lines.append(f"{'  total':56}{number:>10,}{size(total):>12}")
    return lines


def _arrays(one: Message) -> str:
    """The arrays of a message; of many, only the largest."""
    leaves = one.leaves
    if not leaves:
        return "empty"
    many = len(leaves) > _FEW
    shown = sorted(leaves, key=lambda leaf: -leaf.bytes)[:3] if many else leaves
    said = [f"{leaf.name} {leaf.dtype}{list(leaf.shape)}".strip() for leaf in shown]
    said = [leaf.replace(" ", _KEPT) for leaf in said]
    start = f"{len(leaves)} arrays; the largest: " if many else ""
    return start + ", ".join(said)


def _labelled(label: str, text: str, indent: int = 0) -> list[str]:
    text = text.replace(" - ", f"{_KEPT}-{_KEPT}")
    return wrapped(text, 80, f"{' ' * indent}{label:{10 - indent}}", " " * 10)
