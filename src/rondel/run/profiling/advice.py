"""What would help against a bottleneck: a table of sentences.

It names only plans that the run would accept. These change no numbers; where a remedy changes what
is learned, its sentence says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rondel.envs.registry import equivalents, world_of
from rondel.execution.backends import registry
from rondel.execution.telemetry.timing import (
    CALLBACK,
    EVALUATION,
    OUTPUT,
    PYTHON,
    SIMULATOR,
    TRANSPORT,
)
from rondel.run.profiling.diagnosis import DISPATCH, RESTARTS, UNEVEN, Verdict
from rondel.run.profiling.run_profile import IN_TURN, Profile, RunFacts

_HANDOVER = 5e-3  # seconds that a round takes longer once it is cut, about
_EXCHANGE = 4e-4  # seconds that a draw takes longer once cores share its batch, about
_MUCH = 0.3  # of the time
_IDLE = 0.6  # pieces wait for each other if the busiest is busy for less of the time
_COPIED = 1e9  # bytes a second that are copied at least
_LARGE = 2**17  # bytes of an observation that a step takes longest to read


class Case(NamedTuple):
    """A run and its bottleneck; `plan_for` gives flags for a purpose, see `plan_alternatives`."""

    profile: Profile
    verdict: Verdict
    plan_for: Callable[[str], str]

    @property
    def facts(self) -> RunFacts:
        return self.profile.facts

    @property
    def seconds(self) -> float:
        """What the bottleneck takes of a round."""
        return self.verdict.part * self.profile.seconds / max(self.profile.rounds, 1)

    @property
    def one_thread(self) -> bool:
        """Do all pieces share the driver's thread?"""
        return self.profile.pieces[0].name == IN_TURN

    @property
    def overcut(self) -> bool:
        """Would one program save much of what the cuts cost?"""
        return self.facts.traced and (self.one_thread or self.verdict.lost > _MUCH)

    @property
    def waits(self) -> bool:
        """Do pieces in several threads or processes wait for each other?"""
        cut = len(self.profile.pieces) > 1 and not self.one_thread and not self.facts.free
        return cut and not self.overcut and self.verdict.piece.busy < _IDLE

    @property
    def copied(self) -> bool:
        """Is it the amount of data that makes handing over slow?"""
        shares = (share for piece in self.profile.pieces for share in piece.shares)
        moved = sum(share.bytes for share in shares if share.kind == TRANSPORT)
        return moved / _COPIED > self.verdict.part * self.profile.seconds / 10

    @property
    def simulates(self) -> bool:
        """Do environments outside JAX take the time?"""
        return self.verdict.piece.part(SIMULATOR) > _MUCH

    @property
    def pool(self) -> bool:
        """Does its world step the lanes in threads of its own?"""
        world = world_of(self.facts.env)
        return world is not None and world.threads

    @property
    def copies_pay(self) -> bool:
        """Would twice the copies of environments save more than it costs to hand over?

        A pool uses all cores of this machine already.
        """
        here = self.one_thread or (self.pool and not registry.find(self.facts.on).remote)
        return self.simulates and not here and self.seconds / 2 > _HANDOVER

    @property
    def faster(self) -> str:
        """The environment in a faster world, and what that takes."""
        found = next(equivalents(self.facts.env), None) if self.simulates else None
        if found is None:
            return ""
        world, there = found
        missing = "" if world.installed else f" ({world.install})"
        return f"{there.id}{missing}{there.difference}"


class Rule(NamedTuple):
    """A sentence for some bottlenecks, where what it says applies and the run accepts its plan."""

    bounds: tuple[str, ...]
    sentence: str
    applies: Callable[[Case], object] = lambda case: True
    plan: str = ""  # the purpose of a plan, whose flags are the sentence's {plan}
    trains: bool = False  # does it change what is learned?


_STAGES = ("env", "policy", "memory", "label", "gradient", "update", "actor", "learner", "all")
_ANY = (*_STAGES, PYTHON, DISPATCH, TRANSPORT)

RULES = (
    Rule((CALLBACK,), "Hooks block training. Raise their pause_every, or do less in them."),
    Rule((EVALUATION,), "Evaluate less often (--eval-every) or less (--eval-episodes)."),
    Rule((OUTPUT,), "Longer rounds (--rollout) write less often.", trains=True),
    Rule((RESTARTS,), "Restarts of copies: {profile.restarts}. The log says why."),
    Rule(
        (UNEVEN,),
        "{piece.busiest.name} is busy {piece.busiest.busy:.0%} of the time, all copies "
        "{piece.busy:.0%} on average: its lanes or its machine are slower.",
    ),
    Rule((UNEVEN,), "Use {plan}: the other copies then go on.", plan="free", trains=True),
    # what cuts cost, whatever the stage
    Rule(
        _ANY,
        "Use {plan}: one program hands nothing over, and nobody waits.",
        lambda case: case.overcut,
        plan="no cuts",
    ),
    Rule(
        _ANY,
        "Use --on processes: here all pieces share one thread.",
        lambda case: case.one_thread and not case.overcut,
    ),
    Rule(
        _ANY,
        "Use {plan}: all copies become one program on as many cores.",
        lambda case: case.overcut or case.verdict.bound == TRANSPORT,
        plan="one program",
    ),
    Rule(
        (*_STAGES, PYTHON),
        "Use {plan}: pieces then work at the same time, with weights one round old.",
        lambda case: case.waits and case.facts.cores > 1,
        plan="lag",
        trains=True,
    ),
    Rule(
        (*_STAGES, PYTHON),
        "Use {plan}: pieces wait for each other, and one process may be as fast.",
        lambda case: case.waits and not case.facts.lag and not case.plan_for("lag"),
        plan="no cuts",
    ),
    Rule(
        (TRANSPORT,),
        "Use {plan}: fewer cuts hand over less.",
        lambda case: not case.overcut,
        plan="fewer cuts",
    ),
    Rule(
        (TRANSPORT,),
        "Use smaller observations, such as bytes in place of floats.",
        lambda case: case.copied,
        trains=True,
    ),
    Rule(
        (TRANSPORT,),
        "Longer rounds (--rollout) hand over less often.",
        lambda case: not case.copied and not case.overcut,
        trains=True,
    ),
    # against a stage
    Rule(
        (DISPATCH,),
        "Starting operations dominates: use more lanes (--lanes) or, where an algorithm has it, a "
        "larger --batch.",
        trains=True,
    ),
    Rule(
        ("env",),
        "Use more lanes (--lanes): {facts.cores} cores step as many at the same time.",
        lambda case: case.pool and case.facts.lanes < case.facts.cores,
        trains=True,
    ),
    Rule(
        ("env",),
        "Use {plan}: more environments step at the same time.",
        lambda case: case.copies_pay,
        plan="more actors",
    ),
    Rule(
        ("env",),
        "Use more copies than cores ({facts.cores}) if a step sleeps or waits.",
        lambda case: case.copies_pay and not case.plan_for("more actors"),
    ),
    Rule(
        ("env",), "Use {case.faster}: the same environment, but faster.", lambda case: case.faster
    ),
    Rule(
        ("policy",),
        "Use smaller observations: one takes {facts.seen:,} bytes, which each step reads.",
        lambda case: case.facts.seen >= _LARGE,
        trains=True,
    ),
    Rule(("policy", PYTHON), "More lanes (--lanes) take less time per step.", trains=True),
    Rule(
        ("gradient",),
        "Fewer passes over the data ({facts.passes}) or a smaller network take less time.",
        lambda case: case.facts.passes,
        trains=True,
    ),
    Rule(
        ("memory", "label", "update"),
        "Fewer or smaller batches, or a smaller network, take less time.",
        trains=True,
    ),
    Rule(
        ("gradient", "learner", "all"),
        "Use {plan}: several cores share each batch, which changes the last digits.",
        lambda case: case.seconds / max(case.facts.draws, 1) / 2 > _EXCHANGE,
        plan="several cores",
    ),
)


def advise(case: Case) -> tuple[str, ...]:
    """The sentences of all rules that apply, the most important first."""
    found = []
    names: dict[str, object] = {"case": case, "piece": case.verdict.piece}
    names |= {"profile": case.profile, "facts": case.facts}
    for rule in RULES:
        if case.verdict.bound in rule.bounds and rule.applies(case):
            plan = case.plan_for(rule.plan) if rule.plan else ""
            if plan or not rule.plan:
                said = rule.sentence.format(plan=plan, **names)
                found.append(f"{said} This changes what is learned." if rule.trains else said)
    return tuple(found)
