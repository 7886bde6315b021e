"""Resumed runs, and new ones of `--seeds`: a folder for each seed, OUT/seed-0, OUT/seed-1, …"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rondel.errors import RondelError
from rondel.execution.loop.sync_loop import Limits, is_over
from rondel.execution.stages.episode_stats import RecentEpisodes
from rondel.run.session.run import OTHER_MACHINE, Job, resumed_evaluation, resumed_limits
from rondel.run.setup.prepare import Setup
from rondel.run.storage import checkpoint, locate, run_folder

_MOST = 1_000  # each has a folder, and a place in the program


def jobs_for(
    setup: Setup,
    limits: Limits,
    seeds: int,
    out: str | os.PathLike[str] | None,
    evaluation: tuple[int, int],
) -> tuple[list[Job], Path]:
    """The runs of several new seeds, and the folder that holds theirs."""
    seed = setup.task.seed
    most = min(_MOST, 2**32 - seed)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or not 1 <= seeds <= most:
        raise RondelError(f"seeds must be an integer from 1 to {most:,}, got {seeds!r:.40}.")
    every = range(seed, seed + seeds)
    path = run_folder.claim(out, setup.name, setup.env_id, f"seeds{every[0]}-{every[-1]}")
    paths = run_folder.claim_for_seeds(path, every)
    jobs = [
        Job(_with_seed(setup, each), limits, mine, *evaluation)
        for each, mine in zip(every, paths, strict=True)
    ]
    return jobs, path


def resumed_jobs(
    path: Path,
    seeds: dict[int, Path],
    wanted: tuple[int | None, float | None, int | None, int | None],
    brought: dict[str, Any],
    placing: dict[str, Any],
) -> list[Job]:
    """The runs of several seeds, each from its newest checkpoint, or from its start.

    Without `seeds` the one run in `path`, which may also be one of its checkpoints.
    """
    steps, until_return, *evaluation = wanted
    found = {seed: locate.find_checkpoint(mine) for seed, mine in seeds.items() if _is_begun(mine)}
    if not found:  # of several seeds, this says what to give instead
        only = locate.find_checkpoint(next(iter(seeds.values()), path))
        seed = run_folder.read(only).seed
        found, seeds = {seed: only}, {seed: run_folder.home_of(only)}
    read = {seed: run_folder.read(where) for seed, where in found.items()}
    like = next(iter(read.values()))
    limits = resumed_limits(like, steps, until_return)
    for seed, saved in read.items():
        run_folder.check_lanes(found[seed], saved)
    placing = {"on": like.options.get("on"), "resources": None, "address": None} | placing
    setup = run_folder.setup_from(like, placing=placing, **brought)
    jobs, ended = [], []
    for seed, mine in seeds.items():
        before, where = read.get(seed, like._replace(seed=seed, round=0)), found.get(seed)
        if where:
            _check_same(where, before, like._replace(seed=seed))
            run_folder.check_learner(where, setup)
            ended.append(_is_ended(where, before, limits))
        notes = () if before.machine == setup.machine else (OTHER_MACHINE,)
        asked = resumed_evaluation(before, *evaluation)
        asks = (_with_seed(setup, seed), limits, mine, *asked)
        jobs.append(Job(*asks, where, before.round, notes))
    if len(ended) == len(jobs) and all(ended):
        which = f"The runs in {path} are" if len(jobs) > 1 else f"The run in {jobs[0].path} is"
        raise RondelError(
            f"{which} already finished. To continue, use a larger total, such as --steps "
            f"{2 * limits.steps}, and another --until-return if there is one (inf for none)."
        )
    return jobs


def _is_begun(path: Path) -> bool:
    return any((path / "checkpoints").glob("[0-9]*"))


def _check_same(path: Path, before: run_folder.SavedRun, like: run_folder.SavedRun) -> None:
    """Refuse a run that differs from the others in more than its seed."""
    names = ("algorithm", "env", "seed", "config", "options")
    if others := [name for name in names if getattr(before, name) != getattr(like, name)]:
        raise RondelError(
            f"{path} differs from the other seeds in its {others[0]}. Resume each run separately."
        )


def _is_ended(path: Path, before: run_folder.SavedRun, limits: Limits) -> bool:
    """Has a run reached its limits, and written all that it writes at its end?"""
    kept = checkpoint.read_arrays(path, "recent/")
    held: list[Any] = [kept[f"recent/{name}"] for name in RecentEpisodes._fields]
    over = is_over(before.steps, RecentEpisodes(*held), limits)
    return over and run_folder.is_finished(run_folder.home_of(path), path)


def _with_seed(setup: Setup, seed: int) -> Setup:
    """A setup with another seed."""
    return setup._replace(task=setup.task._replace(seed=seed))
