"""The command that resumes from the last good checkpoint, where the newest one is damaged."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rondel.run.setup.options import fits
from rondel.run.storage import metadata, run_folder
from rondel.run.storage.checkpoint import CheckpointError

_FLAGS = (
    *("steps", "until_return", "eval_episodes", "eval_every", "env", "algorithm", "network", "log"),
    *("plan", "lag", "free", "on", "resources", "address", "deadline", "restarts"),
)
_CONFIG_BYTES = 1 << 24  # a larger config.json is not ours


@contextmanager
def offer_resume_hint(asked: dict[str, Any]) -> Iterator[None]:
    """Add to the error for a damaged checkpoint the command that resumes from a good one."""
    try:
        yield
    except CheckpointError as damage:
        if damage.good is None:
            raise
        offer = resume_hint(damage.good, asked)
        sentence = f"{str(damage).removesuffix(f'{damage.good}.')}{offer}"
        raise CheckpointError(sentence, damage.good) from None


def resume_hint(good: Path, asked: dict[str, Any]) -> str:
    """The `rondel resume` that does the request from a good checkpoint.

    An older checkpoint may be from before the run was given a new goal, which the flags then name.
    """
    given = {name: asked[name] for name in _FLAGS if asked.get(name) is not None}
    words = ["rondel", "resume", str(good)]
    for name, value in (_goal(good) | given).items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{name}")
        elif isinstance(value, int | float | str):
            words += [flag, str(value)]
        elif isinstance(value, tuple):
            words += [word for each in value for word in (flag, each)]
    return shlex.join(words)


def _goal(good: Path) -> dict[str, Any]:
    """Flags for the run's newest goal, where `good` has another."""
    home, before = run_folder.home_of(good), metadata.read(good)
    steps, goal = _last(home) or (before.total_steps, before.until_return)
    if steps <= before.steps and run_folder.is_finished(home, good):
        steps = 2 * before.steps  # its newest goal is unknown: let it continue
    flags: dict[str, Any] = {}
    if steps != before.total_steps:
        flags["steps"] = steps
    if goal != before.until_return:
        flags["until_return"] = "inf" if goal is None else goal
    return flags


def _last(home: Path) -> tuple[int, float | None] | None:
    """Steps and return that config.json of a folder asks for, if it is there."""
    try:
        with (home / "config.json").open("rb") as file:
            config = json.loads(file.read(_CONFIG_BYTES))
        steps, goal = config["total_steps"], config["until_return"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return (steps, goal) if fits(steps, int) and fits(goal, float | None) else None
