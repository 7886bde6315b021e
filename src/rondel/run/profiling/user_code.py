"""What has to be brought again for a run with parts of its user's own, in words and as flags."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rondel.algorithms import catalogue
from rondel.run.setup.user_network import PASSED_IN, is_own
from rondel.run.storage.run_folder import can_be_made

if TYPE_CHECKING:
    from rondel.run.profiling.run_profile import RunFacts
    from rondel.run.session.run import Run


def user_parts(run: Run) -> dict[str, Any]:
    """The environment and the network of a run, as far as its checkpoint is not enough for them."""
    setup, network = run.setup, _network(run)
    env = None if can_be_made(setup.env_id) else setup.task.env
    return {"env": env, "network": None if network.startswith(PASSED_IN) else network or None}


def suffice(run: Run) -> bool:
    """Are these parts all that has to be brought?"""
    return run.setup.name in catalogue.TABLE and not _network(run).startswith(PASSED_IN)


def measuring(run: Run) -> str:
    """What measures the stages of a run apart that is at its end."""
    if run.setup.name not in catalogue.TABLE:
        return f"`rondel.profile({str(run.path)!r}, algorithm=…, config=…)` in Python"
    named = {"env": run.env_named, "network": _network(run)}
    own = {"env": not can_be_made(run.setup.env_id), "network": bool(named["network"])}
    known = {name: named[name] for name in own if own[name]}
    return command(run.path or "FOLDER", known)


def measuring_later(about: RunFacts, path: Path | None) -> str:
    """The same of a run of which no more is known than a profile says."""
    return command(path or "FOLDER", {} if can_be_made(about.env) else {"env": None})


def command(path: Path | str, own: dict[str, str | None]) -> str:
    """`rondel profile` with flags for what is its user's own, and words where a name isn't known.

    >>> command("huge", {"env": "envs:Plain", "network": None})
    '`rondel profile huge --env envs:Plain` with --network'
    """
    known = {
        name: value for name, value in own.items() if value and not value.startswith(PASSED_IN)
    }
    words = ["rondel", "profile", str(path)]
    for name, value in known.items():
        words += [f"--{name}", str(value)]
    missing = " and ".join(f"--{name}" for name in own if name not in known)
    return f"`{shlex.join(words)}`" + (f" with {missing}" if missing else "")


def _network(run: Run) -> str:
    """The name of a network of the user's own, if it has one."""
    kind = getattr(run.setup.config, "network", "")
    return str(kind) if is_own(kind) else ""
