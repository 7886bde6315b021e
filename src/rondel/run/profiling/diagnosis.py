"""What a profile means: the bottleneck of a run, and how much of the time it takes.

It reads shares and no clocks, so tests can try it on profiles that they make up.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

from rondel.execution.telemetry.timing import CALLBACK, EVALUATION, OUTPUT, PYTHON, TRANSPORT
from rondel.run.profiling.run_profile import Piece, Profile

UNEVEN, RESTARTS, DISPATCH = "uneven copies", "restarts", "dispatch"
ROUNDS = 2  # since all was compiled: fewer show no bottleneck
_FREE = 2.0  # if four times the rows take less than this, rows cost a third of the time at most
_CLOSE = 0.04  # of the time: runs differ by that much
_TINY = 1e-3  # seconds of a gradient step that may do little but start its operations
_WHERE = {  # the work of a bottleneck whose name doesn't tell
    "actor": " in env+policy",
    "learner": " in memory+gradient+update",
    "all": " in one program",
    CALLBACK: " in hooks between rounds",
    EVALUATION: " in greedy episodes",
    OUTPUT: " in metrics, display and checkpoints",
    UNEVEN: " waiting for the slowest copy",
    RESTARTS: " restarting copies",
    DISPATCH: " starting small operations",
}
_STAGES = {
    "actor": ("env", "policy"),
    "learner": ("memory", "label", "gradient", "update"),
    "all": ("env", "policy", "memory", "label", "gradient", "update"),
}


class Verdict(NamedTuple):
    """The bottleneck of a run."""

    bound: str  # a stage, or transport, python, dispatch, callback, output, uneven copies, restarts
    part: float  # of the time of the busiest piece, or of a round where pieces take turns
    piece: Piece  # where it is
    lost: float  # the part of the time that cuts cost: handing over, and waiting for each other
    text: str


def diagnose(profile: Profile) -> Verdict:
    """Name the bottleneck."""
    busy = max(profile.everyone, key=lambda piece: _busy(profile, piece))
    costs = _costs(profile, profile.everyone if _in_turn(profile) else (busy,))
    bound, part = _bound(profile, costs)
    if _in_turn(profile):  # then the busiest piece need not be the one that costs most
        busy = max(profile.everyone, key=lambda one: (_part_of(profile, one, bound), one.busy))
    lost = 0.0
    if len(profile.pieces) > 1:
        idle = 0.0 if _in_turn(profile) else 1.0 - _busy(profile, busy)
        lost = costs.get(TRANSPORT, 0.0) + idle
    if profile.rounds < ROUNDS:
        text = (
            f"Too short to name a bottleneck: {profile.seconds:.2g} s measured, after "
            f"{profile.starting:.2g} s of startup and compilation. Train for longer."
        )
    else:
        about = [f"{part:.0%} {_whole(profile, busy)}{_WHERE.get(bound, '')}"]
        about += _idle(profile, busy, bound) + _rivals(profile, costs, bound, part)
        text = f"Bottleneck: {bound} ({'; '.join(about)})."
    return Verdict(bound, part, busy, lost, text)


def lines(profile: Profile) -> list[str]:
    """The bottleneck and the advice of a profile, in lines of 80 columns."""
    said = [diagnose(profile).text, *(f"- {one}" for one in profile.advice)]
    wrapped = partial(wrap, width=80, break_on_hyphens=False, break_long_words=False)
    return [line for text in said for line in wrapped(text, subsequent_indent="  ")]


def summary(profile: Profile, path: Path) -> str:
    """The end of a run in words: where its time went, the bottleneck, and the way to advice."""
    text = diagnose(profile).text
    if profile.rounds < ROUNDS:  # shares of so little would mislead
        return text
    return f"{profile.table()}\n{text}\nAdvice: {shlex.join(['rondel', 'profile', str(path)])}"


def _whole(profile: Profile, piece: Piece) -> str:
    """What the bottleneck takes a part of."""
    if len(profile.pieces) == 1:
        return "of the time"
    return "of each round" if _in_turn(profile) else f"of {piece.name}'s time"


def _idle(profile: Profile, piece: Piece, bound: str) -> list[str]:
    if len(profile.pieces) == 1 or piece is profile.driver:
        return []
    return [f"{'' if piece.name == bound else f'{piece.name} '}idle {1.0 - piece.busy:.0%}"]


def _rivals(profile: Profile, costs: dict[str, float], bound: str, part: float) -> list[str]:
    """What takes almost as much, and may be the bottleneck of the next run."""
    if bound == DISPATCH:
        return []
    others = sorted(_by_stage(profile, costs).items(), key=lambda cost: -cost[1])
    close = [f"{name} {x:.0%}" for name, x in others if name != bound and x > part - _CLOSE]
    return [f"close behind: {', '.join(close)}"] if close else []


def _by_stage(profile: Profile, costs: dict[str, float]) -> dict[str, float]:
    """Costs with programs split into their stages, where these were timed."""
    parts: dict[str, float] = {}
    for name, cost in costs.items():
        for stage, share in _inside(profile, name).items():
            parts[stage] = parts.get(stage, 0.0) + cost * share
    return parts


def _inside(profile: Profile, name: str) -> dict[str, float]:
    """The shares of the stages in a program, where they were timed."""
    timed = profile.stages or {}
    inside = {stage: x for stage, x in timed.items() if stage in _STAGES.get(name, ()) and x > 0}
    total = sum(inside.values())
    return {stage: x / total for stage, x in inside.items()} or {name: 1.0}


def _bound(profile: Profile, costs: dict[str, float]) -> tuple[str, float]:
    """What costs most, and its part."""
    most = max(costs, key=lambda name: costs[name])
    if most in _STAGES and profile.stages and _is_tiny(profile):
        return DISPATCH, costs[most]
    # a program of many stages may take most, and yet none of them as much as one outside of it
    parts = _by_stage(profile, costs)
    bound = max(parts, key=lambda name: parts[name])
    return bound, parts[bound]


def _costs(profile: Profile, pieces: Iterable[Piece]) -> dict[str, float]:
    """What these pieces are busy with, or what all of them wait for.

    Pieces that take turns are busy one after the other, so their parts of a round add up. The rest
    of it nobody is busy with: it is what is on its way between them.
    """
    costs: dict[str, float] = {}
    for one in pieces:
        for name, part in costs_of(one).items():
            costs[name] = costs.get(name, 0.0) + part
        uneven = _busy(profile, one) - one.busy
        costs[UNEVEN] = costs.get(UNEVEN, 0.0) + max(0.0, uneven)
    if not profile.facts.free:  # there the others go on meanwhile
        costs[RESTARTS] = profile.lost
    if _in_turn(profile):
        costs[TRANSPORT] = costs.get(TRANSPORT, 0.0) + max(0.0, 1.0 - sum(costs.values()))
    return costs


def _busy(profile: Profile, piece: Piece) -> float:
    """How busy a piece is: as its slowest copy, which a round waits for but in a free run."""
    return piece.busy if profile.facts.free else piece.busiest.busy


def _part_of(profile: Profile, piece: Piece, bound: str) -> float:
    """How much of a piece's time the bottleneck takes."""
    if bound == UNEVEN:
        return _busy(profile, piece) - piece.busy
    return _by_stage(profile, costs_of(piece)).get(bound, 0.0)


def costs_of(piece: Piece) -> dict[str, float]:
    """What a piece is busy with: its stages, and transport, python, callback or output."""
    costs: dict[str, float] = {}
    for share in piece.shares:
        if not share.waits:
            plain = share.kind not in (TRANSPORT, PYTHON, CALLBACK, OUTPUT, EVALUATION)
            name = share.stage if plain else share.kind
            costs[name] = costs.get(name, 0.0) + share.part
    return costs


def _in_turn(profile: Profile) -> bool:
    """Do pieces work one after the other?"""
    return not profile.facts.lag and not profile.facts.free


def _is_tiny(profile: Profile) -> bool:
    """Does it take longer to start operations than to do them?"""
    wide, step = profile.more_rows, profile.one_step
    return wide is not None and step is not None and wide < _FREE and step < _TINY
