"""Relations between the copies of a plan: names, links from policy to env, failure units."""

from __future__ import annotations

from rondel.plan.plan import Plan


def copy_name(plan: Plan, piece: int, copy: int) -> str:
    """The name of a copy in messages: "actor 2 of 4"."""
    which = plan.pieces[piece]
    return which.name if which.copies == 1 else f"{which.name} {copy + 1} of {which.copies}"


def has_separate_envs(plan: Plan) -> bool:
    """Are env and policy in different pieces, joined by links?"""
    return plan.piece_of("env") != plan.piece_of("policy")


def env_copies_of(plan: Plan, policy_copy: int) -> range:
    """The env copies that a policy copy drives."""
    envs, policies = plan.copies("env"), plan.copies("policy")
    if envs < policies:
        mine = policy_copy * envs // policies
        return range(mine, mine + 1)
    each = envs // policies
    return range(policy_copy * each, (policy_copy + 1) * each)


def failure_units(plan: Plan) -> list[list[tuple[int, int]]]:
    """Copies that fail and restart together, as (piece, copy): policies and their envs."""
    rest = [
        (piece, copy)
        for piece, (stages, copies, _) in enumerate(plan.pieces)
        for copy in range(copies)
        if not has_separate_envs(plan) or ("env" not in stages and "policy" not in stages)
    ]
    if not has_separate_envs(plan):
        return [[place] for place in rest]
    policy = plan.pieces.index(plan.piece_of("policy"))
    envs, policies = plan.copies("env"), plan.copies("policy")
    n = min(envs, policies)  # one of the two numbers divides the other
    together = [
        [(0, e) for e in range(i * envs // n, (i + 1) * envs // n)]
        + [(policy, p) for p in range(i * policies // n, (i + 1) * policies // n)]
        for i in range(n)
    ]
    return together + [[place] for place in rest]
