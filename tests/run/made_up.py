"""Profiles of runs that never were, with shares as a test wants them."""

from __future__ import annotations

from typing import Any

from rondel.execution.telemetry.timing import TRANSPORT
from rondel.run.profiling.run_profile import CopyTimes, Piece, Profile, RunFacts, TimeShare

FACTS = RunFacts(
    **{"plan": "all", "on": "processes", "env": "gymnasium:Humanoid-v5", "lanes": 8, "lag": 0},
    **{
        "free": False,
        "traced": False,
        "cores": 2,
        "draws": 4,
        "passes": "--epochs",
        "seen": 0,
        "sharded": False,
    },
)


def made_up(*pieces: Piece, **other: Any) -> Profile:
    mine = {name: value for name, value in other.items() if name in RunFacts._fields}
    rest = {name: value for name, value in other.items() if name not in mine}
    facts = FACTS._replace(**mine)
    return Profile(
        facts, **{"seconds": 10.0, "starting": 3.0, "rounds": 10, "pieces": pieces} | rest
    )


def shares(parts: dict[str, float]) -> tuple[TimeShare, ...]:
    """By stage and kind: `env_simulator=0.7`."""
    split = ((key.partition("_"), part) for key, part in parts.items())
    return tuple(TimeShare(key[0], key[2], part, 10 * part, 100, 0) for key, part in split)


def piece(name: str, copies: int = 1, **parts: float) -> Piece:
    """Copies that are all alike."""
    own = (CopyTimes(name, shares(parts)),) * copies
    return Piece(name, copies, shares(parts), own)


def moving(piece: Piece, count: int) -> Piece:
    """The same, which hands over so many bytes."""
    handed = (s._replace(bytes=count) if s.kind == TRANSPORT else s for s in piece.shares)
    return piece._replace(shares=tuple(handed))


def uneven(name: str, *each: dict[str, float]) -> Piece:
    """Copies that differ, each with the same kinds."""
    owns = tuple(CopyTimes(f"{name} {i + 1}", shares(parts)) for i, parts in enumerate(each))
    means = {kind: sum(parts[kind] for parts in each) / len(each) for kind in each[0]}
    return Piece(name, len(each), shares(means), owns)


FUSED = piece("all", all_xla=0.98, driver_python=0.02)
APART = {"env": 0.05, "policy": 0.1, "memory": 0.05, "gradient": 0.6, "update": 0.2}
IDLE = piece("driver", driver_callback=0.01, driver_rounds=0.99)
