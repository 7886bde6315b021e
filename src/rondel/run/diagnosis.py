"""What a profile means: which stage bounds a run, by how much, and what would help.

It reads shares and knows nothing of clocks, so that it can be tried on made-up ones.
"""

from __future__ import annotations

from typing import NamedTuple

from rondel.envs.quicker import quicker
from rondel.envs.registry import is_installed
from rondel.execution.meter import PYTHON, ROOM, SIMULATOR, STEPS, TRANSPORT
from rondel.run.profile import Piece, Profile

_FREE = 2.0  # of four times the lanes in less than this, rows cost a third of the time at most
_TINY = 1e-3  # seconds of a gradient step that may do little but start its operations
_MEANS = {  # what a program holds, where stages are one
    "actor": "env and policy in one program",
    "learner": "memory, gradient and update in one program",
    "all": "the whole ring in one program",
}
_STAGES = {
    "actor": ("env", "policy"),
    "learner": ("memory", "label", "gradient", "update"),
    "all": ("env", "policy", "memory", "label", "gradient", "update"),
}
_APART = "`rondel profile` on the run's folder measures its stages apart."
_REMEDIES = {
    "policy": "More lanes in a copy make better use of each call, a smaller network costs less, "
    'and one policy can act for many environments (--plan "env*4 | policy+learner").',
    "gradient": 'More copies of it would help (--plan "actor | memory | gradient*2 | update"), '
    "or fewer passes over a round, or a smaller network.",
    "label": 'More copies of it would help (--plan "actor | memory | label*2 | gradient+update").',
    "memory": "Shards of it would help: memory*2. Stacked frames that a Box declares (frames=4) "
    "are stored once.",
    "update": "The optimiser is what costs: a smaller network, or larger and fewer batches.",
    "learner": f"{_APART} Copies of gradient, or fewer passes over a round, would help.",
    "actor": f"{_APART} More actors would help.",
    "all": _APART,
    "dispatch": "Four times the lanes would take hardly longer: the program spends its time on "
    "starting operations, not on numbers. More lanes are almost free (--lanes).",
    TRANSPORT: "What is handed over costs more than what is done with it: fewer cuts, env and "
    "policy in one piece, --on threads, or smaller observations (bytes in place of floats).",
    PYTHON: "More lanes in a copy make fewer calls of the same work.",
    "env": "Most of it is inside of XLA: a cheaper step, or copies on other devices.",
}


class Verdict(NamedTuple):
    bound: str  # a stage, or transport, python, dispatch
    part: float  # of the time of the piece that is busiest, or of a round of pieces in turn
    text: str
    piece: str = "all"  # which that is


def diagnose(profile: Profile) -> Verdict:
    """Read a profile as someone would who has seen many of them."""
    piece = max(profile.pieces, key=lambda piece: piece.busy)
    bound, part = _bound(profile, piece)
    if _in_turn(profile):  # then it need not be the busiest that costs most
        piece = max(profile.pieces, key=lambda one: (_part_of(one, bound), one.busy))
    said = _MEANS.get(bound, "it")
    text = f"{bound} bounds this run: {said} takes {part:.0%} "
    if _in_turn(profile):
        text += f"of each round, in which {piece.name} waits for others {1.0 - piece.busy:.0%}"
    elif len(profile.pieces) > 1:
        text += f"of the time of {piece.name}, which waits for others {1.0 - piece.busy:.0%} of it"
    else:
        text += "of the time"
    advice = " ".join(_help(profile, piece, bound))
    return Verdict(bound, part, f"{text}. {advice}".strip(), piece.name)


def _bound(profile: Profile, piece: Piece) -> tuple[str, float]:
    """The stage, or what else, that costs most, and its part of the busiest piece's time.

    Pieces that take turns are busy one after the other: then it is a part of all their time.
    """
    costs: dict[str, float] = {}
    for one in profile.pieces if _in_turn(profile) else (piece,):
        for name, part in costs_of(one).items():
            costs[name] = costs.get(name, 0.0) + part
    costs[TRANSPORT] = costs.get(TRANSPORT, 0.0) + _between(profile)
    bound = max(costs, key=lambda name: costs[name])
    part = costs[bound]
    if bound not in _STAGES or not profile.apart:
        return bound, part
    if _is_tiny(profile):
        return "dispatch", part
    inside = {stage: x for stage, x in profile.apart.items() if stage in _STAGES[bound] and x > 0}
    if not inside:
        return bound, part
    stage = max(inside, key=lambda stage: inside[stage])
    return stage, part * inside[stage] / sum(inside.values())


def _part_of(piece: Piece, bound: str) -> float:
    """What a piece has of that which bounds, whether measured whole or apart."""
    costs = costs_of(piece)
    whole = next((name for name in costs if bound in _STAGES.get(name, ())), bound)
    return costs.get(bound, costs.get(whole, 0.0))


def costs_of(piece: Piece) -> dict[str, float]:
    """What a piece is busy with, by stage, or what else it is."""
    costs: dict[str, float] = {}
    for share in piece.shares:
        if not share.waits:
            name = share.kind if share.kind in (TRANSPORT, PYTHON) else share.stage
            costs[name] = costs.get(name, 0.0) + share.part
    return costs


def _between(profile: Profile) -> float:
    """The part of the time in which all pieces wait for what is on its way between them.

    Without lag they work one after the other, so what none of them is busy with is that.
    """
    if not _in_turn(profile):
        return 0.0
    return max(0.0, 1.0 - sum(piece.busy for piece in profile.pieces))


def _in_turn(profile: Profile) -> bool:
    return len(profile.pieces) > 1 and not profile.lag and not profile.free


def _is_tiny(profile: Profile) -> bool:
    """Does it take longer to start operations than to do them?"""
    wide, step = profile.more_lanes, profile.one_step
    return wide is not None and step is not None and wide < _FREE and step < _TINY


def _help(profile: Profile, piece: Piece, bound: str) -> list[str]:
    """What would help against it."""
    cut = len(profile.pieces) > 1
    advice = [_REMEDIES.get(bound, "")]
    room = max((p.part(ROOM) for p in profile.pieces), default=0.0)
    if room > 0.1:
        advice.insert(0, f"Actors wait {room:.0%} of their time for room: the learner is slower.")
    if bound == "env" and piece.part(SIMULATOR) > 0.3:
        where = "more copies of it" if cut else '--plan "actor*4 | learner" --on processes'
        advice = [f"More environments at once would help: {where}.", *_elsewhere(profile.env)]
    steps = piece.part(STEPS)
    if steps > 0.3:
        advice.append(f"The policy waits {steps:.0%} for its environments: more copies of env.")
    lags = profile.most_lag is None or profile.most_lag > profile.lag
    if cut and piece.busy < 0.6 and lags and not profile.lag and not profile.free:
        advice.append("Pieces wait for each other: --lag 1 lets them work at the same time.")
    return advice


def _elsewhere(env: str) -> list[str]:
    """Is there a quicker form of an environment of Gymnasium?"""
    there = quicker(env)
    if there is None:
        return []
    if there.startswith("jax:"):
        return [f"{there} is the same in JAX, and part of the program."]
    get = "" if is_installed("envpool") else ' (pip install "rondel[envpool]")'
    atari = ", as 84 x 84 grey pixels" if "ALE/" in env else ""
    return [f"EnvPool has this environment too, in C++{atari}: {there}{get}."]
