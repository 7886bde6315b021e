"""Where the time of a run went, and what would help: rondel.profile."""

from __future__ import annotations

import logging
import os
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rondel.envs.guard.crash_report import EXITED_EARLY, forbid_exit_zero
from rondel.errors import RondelError
from rondel.run.profiling import stage_timing
from rondel.run.profiling.advice import Case, advise
from rondel.run.profiling.diagnosis import diagnose
from rondel.run.profiling.plan_alternatives import alternative
from rondel.run.profiling.run_profile import (
    FILE,
    Profile,
    read_profile,
    take_profile,
    write_profile,
)
from rondel.run.session.run import Run
from rondel.run.setup.prepare import Setup
from rondel.run.storage import locate, run_folder
from rondel.run.storage.run_folder import home_of, setup_from

_PROGRAMS = ("actor", "learner", "all")  # several stages in one
_log = logging.getLogger("rondel")


def profile(
    run: Run | str | os.PathLike[str],
    *,
    stages: bool = True,
    algorithm: Any = None,
    env: Any = None,
    config: Any = None,
    network: Any = None,
) -> Profile:
    """Say where the time of a run went, with advice: of a running one, or from a run's folder.

    The `stages` of a program are timed one by one, once for each folder. That and advice on plans
    need an algorithm, environment or network of your own again. The newest events are in the
    folder's trace.json, for Perfetto and Chrome.

    >>> print(rondel.profile("runs/a").table())
    """
    if isinstance(run, Run):
        return _with_advice(take_profile(run)[0], run.setup)
    folder = _home(Path(run))
    found = read_profile(folder)
    brought = {"algorithm": algorithm, "env": env, "config": config, "network": network}
    setup = None
    try:
        with nullcontext() if found.facts.traced else forbid_exit_zero(EXITED_EARLY):
            saved = run_folder.read(locate.find_checkpoint(folder))
            setup = setup_from(saved, **brought, placing={})
            if stages and can_time_stages(found):
                found = _with_stages(found, setup, algorithm=algorithm, network=network)
                write_profile(folder, found)
    except RondelError as error:
        if any(part is not None for part in brought.values()):
            raise  # they were brought for this
        _log.warning("Stages were not timed, and advice may be missing. %s", error)
    return _with_advice(found, setup)


def can_time_stages(found: Profile) -> bool:
    """Does a program of several stages take much of the time, and were they not timed before?"""
    shares = (share for piece in found.pieces for share in piece.shares)
    fused = any(share.stage in _PROGRAMS and share.part > 0.1 for share in shares)
    return fused and found.stages is None and not found.facts.sharded


def _with_advice(found: Profile, setup: Setup | None) -> Profile:
    plan_for = partial(alternative, setup) if setup else lambda purpose: ""
    return replace(found, advice=advise(Case(found, diagnose(found), plan_for)))


def _with_stages(found: Profile, setup: Setup, **brought: Any) -> Profile:
    """Time the stages, and if all of the run is one program once more with more rows."""
    spent = stage_timing.time_stages(setup.task)
    total, more = sum(spent.values()), None
    if any(s.stage == "all" and s.part > 0.1 for piece in found.pieces for s in piece.shares):
        with suppress(RondelError):  # it may not fit into memory
            wide = stage_timing.wider(setup, **brought)
            more = sum(stage_timing.time_stages(wide.task).values()) / total
    step = (spent["gradient"] + spent["update"]) / setup.task.algorithm.memory.draws
    shares = {stage: seconds / total for stage, seconds in spent.items()}
    return replace(found, stages=shares, more_rows=more, one_step=step)


def _home(path: Path) -> Path:
    """The folder of the run that is meant by `path`, which may be one of its checkpoints."""
    whole = path.absolute()
    home = home_of(whole) if whole.parent.name == "checkpoints" else path
    if any(os.path.isfile(home / name) for name in (FILE, "config.json")):
        return home
    return home_of(locate.find_checkpoint(path))  # which says where there is no run
