"""What a profile means: which stage bounds a run, by how much; `advice` says what would help.

It reads shares and knows nothing of clocks, so that it can be tried on made-up ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rondel.execution.telemetry.timing import CALLBACK, OUTPUT, PYTHON, TRANSPORT
from rondel.run.profiling.advice import RESTARTS, UNEVEN, Bound, advise
from rondel.run.profiling.run_profile import Piece, Profile
from rondel.run.profiling.user_code import measuring_later

_FREE = 2.0  # of four times the rows in less than this, rows cost a third of the time at most
ROUNDS = 2  # since all was compiled, that say something at the least
_CLOSE = 0.04  # of the time: as much, as far as a run can tell
_TINY = 1e-3  # seconds of a gradient step that may do little but start its operations
_MEANS = {  # what a program holds, where stages are one, or what else it is
    "actor": "env and policy in one program take",
    "learner": "memory, gradient and update in one program take",
    "all": "the whole ring in one program takes",
    CALLBACK: "what is called between rounds takes",
    OUTPUT: "rows, display and checkpoints take",
    UNEVEN: "waiting for the slowest takes",
    RESTARTS: "to start copies again takes",
}
_STAGES = {
    "actor": ("env", "policy"),
    "learner": ("memory", "label", "gradient", "update"),
    "all": ("env", "policy", "memory", "label", "gradient", "update"),
}


class Verdict(NamedTuple):
    bound: str  # a stage, or transport, python, dispatch, callback, output, uneven copies
    part: float  # of the time of the piece that is busiest, or of a round of pieces in turn
    text: str
    piece: str = "all"  # which that is


def diagnose(profile: Profile, path: Path | None = None, measuring: str | None = None) -> Verdict:
    """Read a profile as someone would who has seen many of them; `path` is the run's folder.

    `measuring` is what measures its stages apart, if more is known of that; "" if nothing would.
    """
    everyone = (*profile.pieces, *([profile.driver] if profile.driver else []))
    busy = max(everyone, key=lambda piece: _busy(profile, piece))
    costs = _costs(profile, everyone if _in_turn(profile) else (busy,))
    bound, part = _bound(profile, costs)
    if _in_turn(profile):  # then it need not be the busiest that costs most
        busy = max(everyone, key=lambda one: (_part_of(profile, one, bound), one.busy))
    verb = "bound" if bound in (UNEVEN, RESTARTS) else "bounds"
    text = f"{bound} {verb} this run: {_MEANS.get(bound, 'it takes')} {part:.0%} "
    told = Bound(bound, part, busy, _lost(profile, busy, costs))
    how = measuring_later(profile.about, path) if measuring is None else measuring
    advice = " ".join(advise(profile, told, how))
    text += _of_what(profile, busy) + _rivals(profile, costs, bound, part)
    if profile.rounds < ROUNDS:
        text, advice = _too_short(profile), ""
    return Verdict(bound, part, f"{text}. {advice}".strip(), busy.name)


def _rivals(profile: Profile, costs: dict[str, float], bound: str, part: float) -> str:
    """What takes as much, but for what the next run may take more or less."""
    if bound == "dispatch":
        return ""
    said = [
        f"{_MEANS.get(name, f'{name} takes')} about as much ({other:.0%})"
        for name, other in _by_stage(profile, costs).items()
        if name != bound and other > part - _CLOSE
    ]
    return f"; {', '.join(said)}" if said else ""


def _by_stage(profile: Profile, costs: dict[str, float]) -> dict[str, float]:
    """The same costs, with stages that were measured apart in the place of their programs."""
    parts: dict[str, float] = {}
    for name, cost in costs.items():
        for stage, share in _inside(profile, name).items():
            parts[stage] = parts.get(stage, 0.0) + cost * share
    return parts


def _inside(profile: Profile, name: str) -> dict[str, float]:
    """The shares of the stages in a program, where they were measured apart."""
    measured = profile.apart or {}
    inside = {stage: x for stage, x in measured.items() if stage in _STAGES.get(name, ()) and x > 0}
    total = sum(inside.values())
    return {stage: x / total for stage, x in inside.items()} or {name: 1.0}


def _too_short(profile: Profile) -> str:
    took = f"{profile.seconds:.2g} s after {profile.starting:.2g} s of starting and compiling"
    return f"What bounds this run can't be told of {took}: a longer one would show it"


def _of_what(profile: Profile, piece: Piece) -> str:
    if len(profile.pieces) == 1:
        return "of the time"
    if piece is profile.driver:
        return "of each round" if _in_turn(profile) else "of the driver's time"
    idle = f"waits for others {1.0 - piece.busy:.0%}"
    if _in_turn(profile):
        return f"of each round, in which {piece.name} {idle}"
    return f"of the time of {piece.name}, which {idle} of it"


def _bound(profile: Profile, costs: dict[str, float]) -> tuple[str, float]:
    """The stage, or what else, that costs most, and its part."""
    most = max(costs, key=lambda name: costs[name])
    if most in _STAGES and profile.apart and _is_tiny(profile):
        return "dispatch", costs[most]
    # a program of many stages may take most, and yet none of them as much as one outside of it
    parts = _by_stage(profile, costs)
    bound = max(parts, key=lambda name: parts[name])
    return bound, parts[bound]


def _costs(profile: Profile, pieces: Iterable[Piece]) -> dict[str, float]:
    """What these pieces are busy with, or all of them have to wait for.

    Pieces that take turns are busy one after the other, so their parts of a round add up. The rest
    of it nobody is busy with: it is what is on its way between them.
    """
    costs: dict[str, float] = {}
    for one in pieces:
        for name, part in costs_of(one).items():
            costs[name] = costs.get(name, 0.0) + part
        uneven = _busy(profile, one) - one.busy
        costs[UNEVEN] = costs.get(UNEVEN, 0.0) + max(0.0, uneven)
    if not profile.about.free:  # there the others go on meanwhile
        costs[RESTARTS] = profile.lost
    if _in_turn(profile):
        costs[TRANSPORT] = costs.get(TRANSPORT, 0.0) + max(0.0, 1.0 - sum(costs.values()))
    return costs


def _busy(profile: Profile, piece: Piece) -> float:
    """How busy a piece is. A round needs all copies, so it is the slowest that counts.

    Not so in a free run, where nobody waits for it.
    """
    return piece.busy if profile.about.free else piece.busiest.busy


def _part_of(profile: Profile, piece: Piece, bound: str) -> float:
    """What a piece has of that which bounds, whether measured whole or apart."""
    if bound == UNEVEN:
        return _busy(profile, piece) - piece.busy
    return _by_stage(profile, costs_of(piece)).get(bound, 0.0)


def costs_of(piece: Piece) -> dict[str, float]:
    """What a piece is busy with, by stage, or what else it is."""
    costs: dict[str, float] = {}
    for share in piece.shares:
        if not share.waits:
            plain = share.kind not in (TRANSPORT, PYTHON, CALLBACK, OUTPUT)
            name = share.stage if plain else share.kind
            costs[name] = costs.get(name, 0.0) + share.part
    return costs


def _lost(profile: Profile, piece: Piece, costs: dict[str, float]) -> float:
    """The part of a cut run's time that handing over and waiting for each other takes."""
    if len(profile.pieces) == 1:
        return 0.0
    idle = 0.0 if _in_turn(profile) else 1.0 - _busy(profile, piece)
    return costs.get(TRANSPORT, 0.0) + idle


def _in_turn(profile: Profile) -> bool:
    return not profile.about.lag and not profile.about.free


def _is_tiny(profile: Profile) -> bool:
    """Does it take longer to start operations than to do them?"""
    wide, step = profile.more_rows, profile.one_step
    return wide is not None and step is not None and wide < _FREE and step < _TINY
