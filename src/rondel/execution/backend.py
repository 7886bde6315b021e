"""What a backend is: it carries the copies of a plan's pieces and what passes between them.

A call is asked for at once and answered in time: it gives a promise, which may be handed on to
another call before its value is there. Each copy answers its calls in the order in which they were
made. So the loop that makes the calls reads like one that waits, and only waits for what it must
know itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from rondel.errors import RondelError
from rondel.execution.layout import groups
from rondel.execution.meter import Seen
from rondel.plan import Plan
from rondel.types import Env

Promise: TypeAlias = Any  # each backend has its own


class Copy(Protocol):
    """One copy of a piece, wherever it runs."""

    name: str  # for people: "actor 3 of 8"

    @property
    def seen(self) -> Seen | None:
        """What it last said in passing of where its time goes; nobody is asked for it."""

    def call(self, request: str, *args: Any) -> Promise:
        """Ask for something; a tuple of promises where `fragment.RESULTS` says so."""


class Restarts(NamedTuple):
    """How often copies were started again, and for how many seconds some were not there."""

    times: int = 0
    seconds: float = 0.0


class Backend(Protocol):
    """Where copies run."""

    def launch(self, task: Any, plan: Plan) -> list[list[Copy]]:
        """Start every copy of every piece, and connect policies with their environments."""

    def get(self, promises: Sequence[Promise]) -> list[Any]:
        """Their values, with NumPy or JAX arrays; whatever went wrong anywhere is raised here."""

    def wait(self, promises: Sequence[Promise]) -> list[int]:
        """Which of them are there by now: at least one."""

    def settled(self, now: bool = False) -> None:
        """The ring is between two rounds: a time, or with `now` the time, to keep what it is."""

    def restarts(self) -> Restarts:
        """Of all copies, so far."""

    def close(self) -> None:
        """End every copy; nothing stays behind."""


class Lost(RondelError):
    """A copy is gone: its process or actor died."""


class Late(RondelError):
    """Nothing was heard for too long."""


_UNDONE = {"step": "took no step", "reset": "began no episode"}


def late(env: str, request: str, seconds: float) -> Late:
    """An environment has not answered its policy within so many seconds."""
    undone = _UNDONE.get(request, f"did not answer `{request}`")
    why = "its environment hangs, or is slower than that"
    return Late(f"{env} {undone} within {seconds:g} s: {why}.")


def recipe(task: Any, plan: Plan, piece: int, copy: int) -> tuple[Any, tuple[Any, ...]]:
    """What makes a copy: a class and its arguments. Host environments alone need no jax."""
    if plan.pieces[piece].stages != ("env",):
        from rondel.execution.fragment import Fragment

        return Fragment, (task, plan, piece, copy)
    mine = groups(plan, task.lanes, task.block, copy)
    if isinstance(task.env, Env):
        from rondel.execution.traced import TracedLanes

        return TracedLanes, (task, mine)
    from rondel.execution.hosted import HostedLanes

    return HostedLanes, (task.env, task.seed, mine)


def name_of(plan: Plan, piece: int, copy: int) -> str:
    """What people call a copy."""
    which = plan.pieces[piece]
    return which.name if which.copies == 1 else f"{which.name} {copy + 1} of {which.copies}"


def drives(plan: Plan) -> bool:
    """Is the policy cut off from its environments, so that it needs links to them?"""
    return plan.piece_of("env") != plan.piece_of("policy")


def envs_of(plan: Plan, policy_copy: int) -> range:
    """The env copies that a policy copy drives."""
    envs, policies = plan.copies("env"), plan.copies("policy")
    if envs < policies:
        mine = policy_copy * envs // policies
        return range(mine, mine + 1)
    each = envs // policies
    return range(policy_copy * each, (policy_copy + 1) * each)


def units(plan: Plan) -> list[list[tuple[int, int]]]:
    """Copies that live and die together, as (piece, copy): policies and the envs they drive."""
    rest = [
        (piece, copy)
        for piece, (stages, copies, _) in enumerate(plan.pieces)
        for copy in range(copies)
        if not drives(plan) or ("env" not in stages and "policy" not in stages)
    ]
    if not drives(plan):
        return [[place] for place in rest]
    policy = plan.pieces.index(plan.piece_of("policy"))
    envs, policies = plan.copies("env"), plan.copies("policy")
    n = min(envs, policies)  # each shares either its envs or its policies with nobody
    together = [
        [(0, e) for e in range(i * envs // n, (i + 1) * envs // n)]
        + [(policy, p) for p in range(i * policies // n, (i + 1) * policies // n)]
        for i in range(n)
    ]
    return together + [[place] for place in rest]
