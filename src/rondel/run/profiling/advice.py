"""What would help against what bounds a run. Nothing is said that the run would be refused.

A plan says where things run and changes no numbers; lanes, passes and networks change what is
learned, and whoever is told to change them is told that too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rondel.envs.registry import equivalents, world_of
from rondel.execution.backends import registry
from rondel.execution.telemetry.timing import (
    CALLBACK,
    OUTPUT,
    PYTHON,
    ROOM,
    SIMULATOR,
    STEPS,
    TRANSPORT,
)
from rondel.formatting import plural, size
from rondel.run.profiling.run_profile import IN_TURN, Piece, Profile, RunFacts

UNEVEN, RESTARTS = "uneven copies", "restarts"
_HANDOVER = 5e-3  # seconds: what a round costs more once it is cut, about
_EXCHANGE = 4e-4  # seconds: what a draw costs more once its batch is shared by cores, about
_MUCH = 0.3  # of the time
_IDLE = 0.6  # of the time that the busiest is busy: below, they wait for each other
_COPIED = 1e9  # bytes a second that are copied at the least
_LARGE = 2**17  # bytes of an observation, whose way through memory is what a step takes
_LEARNS = "which changes what is learned"
_REMEDIES = {
    "policy": f"More lanes in a call (--lanes) or a smaller network cost less a step, {_LEARNS}.",
    "label": f"A smaller network costs less, {_LEARNS}.",
    "memory": f"Smaller batches or fewer draws cost less, {_LEARNS}. Stacked frames that a Box "
    "declares (frames=4) are stored once.",
    "update": f"The optimiser is what costs: a smaller network, or larger and fewer batches, "
    f"{_LEARNS}.",
    "dispatch": "Four times the rows would take less than twice as long: much of it is to start "
    f"operations, however few numbers they have. More lanes (--lanes) cost little, {_LEARNS}.",
    "replay": "Four times the rows would take less than twice as long: much of it is to start "
    "operations, however few numbers they have. More lanes and larger batches (--lanes, --batch) "
    f"cost little, {_LEARNS}.",
    PYTHON: f"More lanes in a copy (--lanes) make fewer calls of the same work, {_LEARNS}.",
    CALLBACK: "It runs in the driver, and nothing else goes on meanwhile: call it in fewer rounds, "
    "or do less in it.",
    OUTPUT: "Longer rounds (--rollout) are written down less often, which changes what is learned.",
    "env": "A cheaper step would help, or an accelerator.",
}


class Bound(NamedTuple):
    """What bounds a run."""

    name: str
    part: float
    piece: Piece  # whose it is
    lost: float  # the part of the time that cuts cost: handing over, and waiting for each other


def advise(profile: Profile, bound: Bound, measuring: str) -> list[str]:
    """Sentences on what would help; `measuring` is what measures stages apart, if it can be."""
    if bound.name in ("all", "learner", "actor"):
        ways = [*_around(profile, bound), *_cores(profile, bound)]
        if profile.about.sharded or not measuring:
            return ways
        return [*ways, _apart(profile, bound.name, measuring)]
    return [*_around(profile, bound), *_against(profile, bound)]


def _apart(profile: Profile, name: str, measuring: str) -> str:
    """Flops would be known at once, but small programs don't take their time for these."""
    its = "its stages" if name == "all" else f"the stages of {name}"
    takes = f"about {max(5.0, profile.apart_takes):.0f} s"
    return f"{measuring} runs {its} apart for {takes}, and says which takes most."


def _around(profile: Profile, bound: Bound) -> Iterator[str]:
    """What the plan costs, whatever stage it is."""
    about = profile.about
    room = max((piece.part(ROOM) for piece in profile.pieces), default=0.0)
    if room > 0.1:
        yield f"Actors wait {room:.0%} of their time for room: the learner is slower."
    if bound.name in (CALLBACK, OUTPUT, UNEVEN, RESTARTS):
        return
    whole, lag = about.remedies.get("whole"), about.remedies.get("lag")
    if profile.pieces[0].name == IN_TURN:
        plan = f"in one piece ({whole}) it is one program, and " if about.traced and whole else ""
        yield (
            f"All pieces share this thread, so copies save nothing: {plan}--on processes lets them "
            "work at the same time."
        )
    elif len(profile.pieces) == 1:
        return
    elif _is_cut_too_much(profile, bound):
        same = about.remedies.get("devices")
        copies = f"; {same} makes one program of the copies, on as many cores" if same else ""
        yield (
            f"The cuts cost {bound.lost:.0%} of the time. This environment is a part of the "
            f"program, so in one piece ({whole}) nothing is handed over, and nobody waits{copies}."
        )
    elif bound.piece.busy >= _IDLE or bound.name == TRANSPORT or about.free:
        return
    elif lag and about.cores > 1:
        yield (
            f"Pieces wait for each other: {lag} lets them work at the same time, with weights "
            f"that are a round old, {_LEARNS}."
        )
    elif whole and not lag and not about.lag:
        yield (
            "Pieces wait for each other, and this algorithm learns from nothing older: in one "
            f"piece ({whole}) it may be as quick, on fewer cores."
        )


def _is_cut_too_much(profile: Profile, bound: Bound) -> bool:
    """Would all of it be quicker as one program?"""
    about = profile.about
    return about.traced and "whole" in about.remedies and bound.lost > _MUCH


def _against(profile: Profile, bound: Bound) -> Iterator[str]:
    """What helps against that which bounds."""
    about, name = profile.about, bound.name
    simulates = name == "env" and bound.piece.part(SIMULATOR) > _MUCH
    if name == UNEVEN:
        yield from _uneven(profile, bound)
    elif name == RESTARTS:
        yield (
            f"Copies were started again {plural(profile.restarts, 'time')} in all; why was said "
            "when it happened. What ends them is what to mend."
        )
        return
    elif name == TRANSPORT:
        yield from _transport(profile, bound)
    elif name == "dispatch" and about.batched:
        yield _REMEDIES["replay"]
    elif name == "env" and _has_threads(about):
        yield from _threads(about)
    elif name == "policy" and about.seen >= _LARGE:
        yield (
            f"An observation takes {size(about.seen)}, and to read it is much of this: smaller "
            "ones, or bytes in place of floats, would help."
        )
    elif name == "gradient":
        passes = f" ({about.passes})" if about.passes else ""
        yield (
            f"Fewer passes over what is collected{passes}, or a smaller network, cost less, "
            f"{_LEARNS}."
        )
    elif not simulates and (name != "env" or about.traced):
        yield _REMEDIES.get(name, "")
    if name == "gradient":
        yield from _cores(profile, bound)
    steps = bound.piece.part(STEPS)
    if steps > _MUCH:
        yield f"The policy waits {steps:.0%} for its environments."
    shared = about.fused or profile.pieces[0].name == IN_TURN or (simulates and _has_threads(about))
    if not shared and not _is_cut_too_much(profile, bound):
        yield from _copies(profile, bound, simulates)
    if simulates:
        yield from _elsewhere(about.env)


def _cores(profile: Profile, bound: Bound) -> Iterator[str]:
    """Batches shared by several cores, where a draw saves more than they wait for each other."""
    about = profile.about
    draw = bound.part * profile.seconds / max(profile.rounds, 1) / max(about.draws, 1)
    if bound.name != "actor" and "cores" in about.remedies and draw / 2 > _EXCHANGE:
        yield (
            f"It runs on one of {about.cores} cores: {about.remedies['cores']} shares each batch "
            f"between them, {_LEARNS} a little."
        )


def _copies(profile: Profile, bound: Bound, simulates: bool) -> Iterator[str]:
    """More copies, where they save more than it costs to hand over what they make.

    Not of a policy: each copy would make as many calls, which cost as much for fewer lanes.
    """
    about, piece = profile.about, bound.piece
    # of a round, by twice as many
    saved = bound.part * profile.seconds / max(profile.rounds, 1) / 2
    if simulates:
        # environments that sleep leave a core to others
        flags = about.remedies.get("sleepers" if piece.sleeps else "actors")
        if flags and saved > _HANDOVER:
            yield f"More environments at once would help: {flags}."
        elif not flags and piece.sleeps and piece.copies >= about.lanes:
            yield (
                "Each lane has a copy of its own: more lanes (--lanes) in more copies would step "
                f"more at once, {_LEARNS}."
            )
        elif not flags and not piece.sleeps and piece.copies >= about.cores:
            yield (
                f"There is a copy for each core ({about.cores}): more would help only if a step "
                "waits for something."
            )
    name = {"gradient": "gradients", "label": "labels", "memory": "shards"}.get(bound.name, "")
    if name in about.remedies and saved > _HANDOVER * about.draws:  # each draw is handed over
        yield f"More copies of it would help: {about.remedies[name]}."


def _has_threads(about: RunFacts) -> bool:
    """Whether its world steps lanes in threads of its own."""
    world = world_of(about.env)
    return world is not None and world.threads


def _threads(about: RunFacts) -> Iterator[str]:
    """Advice where each lane has a thread, up to the number of cores."""
    there = about.remedies.get("actors") if registry.find(about.on).remote else None
    if about.lanes < about.cores:
        yield (
            f"Each of the {about.lanes} lanes steps in a thread of its own, and there are "
            f"{about.cores} cores: more lanes (--lanes) cost hardly more, {_LEARNS}."
        )
    elif there:
        yield f"More environments at once would help, on other machines: {there}."
    else:
        yield (
            f"The lanes already step in as many threads as there are cores ({about.cores}): use "
            "more cores, or copies of actor on other machines (--on ray)."
        )


def _uneven(profile: Profile, bound: Bound) -> Iterator[str]:
    piece, slowest = bound.piece, bound.piece.busiest
    rest = [own.busy for own in piece.each if own is not slowest]
    others = sum(rest) / max(len(rest), 1)
    yield (
        f"{slowest.name} is busy {slowest.busy:.0%} of it, the others {others:.0%}: its lanes or "
        "its machine are slower."
    )
    if free := profile.about.remedies.get("free"):
        yield f"{free} lets the others go on, {_LEARNS}."


def _transport(profile: Profile, bound: Bound) -> Iterator[str]:
    about = profile.about
    whole, fewer = about.remedies.get("whole"), about.remedies.get("fewer")
    if _is_cut_too_much(profile, bound):
        return  # it was said
    devices = about.remedies.get("devices")
    cuts = [f"{devices} (one program of all copies, on as many cores)"] if devices else []
    cuts += [f"fewer cuts ({fewer or whole})"] if fewer or whole else []
    if not devices:  # else most of it is weights and gradients, however large a round is
        cuts += ["--on threads"] if registry.find(about.on).own_process else []
        is_much = _moved(profile) / _COPIED > bound.part * profile.seconds / 10
        smaller = "smaller observations (bytes in place of floats)"
        # where it is not how much it is, what takes time is that it is handed over
        cuts.append(smaller if is_much else f"longer rounds (--rollout, {_LEARNS})")
    said = f"{', '.join(cuts[:-1])} or {cuts[-1]}" if len(cuts) > 1 else cuts[0]
    if bound.part > 0.5:
        yield f"What is handed over costs more than what is done with it: {said} would help."
    else:
        yield f"Handing over takes no more than half of the time; {said} would save some of it."


def _moved(profile: Profile) -> int:
    """The bytes that were handed over."""
    each = (share for piece in profile.pieces for share in piece.shares)
    return sum(share.bytes for share in each if share.kind == TRANSPORT)


def _elsewhere(env: str) -> list[str]:
    """The same environment in a faster world."""
    found = next(equivalents(env), None)
    if found is None:
        return []
    world, there = found
    get = "" if world.installed else f" ({world.install})"
    return [f"{there.id} is the same environment, {there.how}{get}."]
