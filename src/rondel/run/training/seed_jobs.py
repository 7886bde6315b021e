"""What `--seeds` asks for: a folder with an ordinary run for each, OUT/seed-0, OUT/seed-1, …"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rondel.errors import RondelError
from rondel.execution.loop.sync_loop import Limits, is_over
from rondel.execution.stages.episode_stats import RecentEpisodes
from rondel.run.session.load import OTHER_MACHINE
from rondel.run.session.stop_conditions import resumed_limits
from rondel.run.setup.prepare import Setup
from rondel.run.storage import checkpoint, locate, metadata, run_folder
from rondel.run.training.multi_seed import Job

_MOST = 1_000  # each has a folder, and a place in the program


def jobs_for(
    request: tuple[Setup, Limits, str],
    seed: int,
    seeds: int,
    out: str | os.PathLike[str] | None,
    eval_episodes: int,
) -> tuple[list[Job], Path]:
    """The runs of several seeds, and the folder that holds theirs."""
    most = min(_MOST, 2**32 - seed)
    if not isinstance(seeds, int) or isinstance(seeds, bool) or not 1 <= seeds <= most:
        raise RondelError(
            f"seeds={seeds!r:.40} can't be trained: a whole number from 1 to {most} would work."
        )
    setup, limits, here = request
    every = range(seed, seed + seeds)
    path = run_folder.claim(out, setup.name, setup.env_id, f"seeds{every[0]}-{every[-1]}")
    paths = run_folder.claim_for_seeds(path, every)
    jobs = [
        Job(_with_seed(setup, each), limits, here, mine, eval_episodes)
        for each, mine in zip(every, paths, strict=True)
    ]
    return jobs, path


def resumed_jobs(
    path: Path,
    seeds: dict[int, Path],
    wanted: tuple[int | None, float | None, int | None],
    brought: dict[str, Any],
    placing: dict[str, Any],
) -> list[Job]:
    """The runs of several seeds, each from its newest checkpoint; from its start if it has none."""
    steps, until_return, eval_episodes = wanted
    found = {seed: locate.find_checkpoint(mine) for seed, mine in seeds.items() if _is_begun(mine)}
    if not found:
        locate.find_checkpoint(next(iter(seeds.values())))  # says what would work
    read = {seed: metadata.read(where) for seed, where in found.items()}
    like = next(iter(read.values()))
    limits = resumed_limits(like, steps, until_return)
    setup = run_folder.setup_from(like, placing={"on": like.options.get("on")} | placing, **brought)
    jobs, ended = [], []
    for seed, mine in seeds.items():
        before, where = read.get(seed, like._replace(seed=seed, round=0)), found.get(seed)
        if where:
            _check_same(where, before, like._replace(seed=seed))
            metadata.check_lanes(where, before)
            metadata.check_learner(where, setup)
            ended.append(_is_ended(where, before, limits))
        plays = before.eval_episodes if eval_episodes is None else eval_episodes
        notes = () if before.machine == setup.machine else (OTHER_MACHINE,)
        job = Job(
            _with_seed(setup, seed), limits, setup.machine, mine, plays, where, before.round, notes
        )
        jobs.append(job)
    if len(ended) == len(jobs) and all(ended):
        raise RondelError(
            f"The runs in {path} are at their end. To go on, name a larger total, such as "
            f"steps={2 * limits.steps} (--steps on the command line), and another until_return if "
            "they have one (inf for none)."
        )
    return jobs


def _is_begun(path: Path) -> bool:
    return any((path / "checkpoints").glob("[0-9]*"))


def _check_same(path: Path, before: metadata.SavedRun, like: metadata.SavedRun) -> None:
    """Refuse a run that differs from the others by more than its seed."""
    names = ("algorithm", "env", "seed", "config", "options")
    if others := [name for name in names if getattr(before, name) != getattr(like, name)]:
        raise RondelError(
            f"{path} differs in its {others[0]} from what stands beside it: go on with each of "
            "these runs by itself."
        )


def _is_ended(path: Path, before: metadata.SavedRun, limits: Limits) -> bool:
    """Has a run reached its limits, and written down all that it does at its end?"""
    kept = checkpoint.read_arrays(path, "recent/")
    held: list[Any] = [kept[f"recent/{name}"] for name in RecentEpisodes._fields]
    over = is_over(before.steps, RecentEpisodes(*held), limits)
    return over and run_folder.is_finished(run_folder.home_of(path), path)


def _with_seed(setup: Setup, seed: int) -> Setup:
    """The same run with another seed."""
    return setup._replace(task=setup.task._replace(seed=seed))
