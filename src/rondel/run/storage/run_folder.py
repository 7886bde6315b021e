"""The folder of a run, and the description of the run in it.

Anyone can compute a checksum and write a meta.json: with wrong types, with huge numbers, with sizes
that the arrays beside it don't have. These are refused before anything is allocated.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import reprlib
import time
import typing
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from rondel import spaces
from rondel.algorithms import catalogue
from rondel.envs.registry import id_without_world, names
from rondel.envs.world import split
from rondel.errors import RondelError
from rondel.execution.loop.sync_loop import Limits
from rondel.execution.stages.shapes import learner_like
from rondel.execution.stages.task import bytes_of
from rondel.plan.parser import parse
from rondel.run.setup.options import Options, fits
from rondel.run.setup.prepare import Setup, is_own_network, prepare
from rondel.run.storage.atomic_files import explain_failure, replace_file
from rondel.run.storage.checkpoint import CheckpointError, read_meta, read_shapes
from rondel.run.storage.locate import META, STATE


def claim(out: str | os.PathLike[str] | None, name: str, env_id: str, which: str) -> Path:
    """A new folder for a run: `out`, or one under runs/ named after what runs."""
    if out is None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        words = f"{name}-{id_without_world(env_id)}-{which}-{stamp}"
        stem = Path("runs") / "".join(c if c.isalnum() or c in "-_." else "-" for c in words)
        tries = (stem, *(stem.with_name(f"{stem.name}-{i}") for i in range(2, 1000)))
        path = next(p for p in tries if not p.exists())
    else:
        path = Path(out)
        for held, what in (("", "a run"), (f"{_SEED}*/", "the runs of several seeds")):
            if any(path.glob(f"{held}checkpoints/[0-9]*")):
                raise RondelError(
                    f"{path} already holds {what}. Continue with `rondel resume {path}`, or "
                    "choose another folder."
                )
    _make(path)
    return path


def claim_for_seeds(path: Path, seeds: Sequence[int]) -> list[Path]:
    """A folder for each seed in a claimed folder, all at once, so that `resume` finds all."""
    if (path / "config.json").exists():
        raise RondelError(f"{path} is the folder of a single run. Choose another one.")
    if strange := sorted(str(seed) for seed in set(seeds_in(path)) - set(seeds)):
        raise RondelError(
            f"{path} has folders of other seeds: {', '.join(strange)}. Choose another folder, or "
            "remove them."
        )
    paths = [path / f"{_SEED}{seed}" for seed in seeds]
    for one in paths:
        _make(one)
    return paths


def release(path: Path, *inside: Path) -> None:
    """Remove a claimed folder and those inside, if they are empty."""
    with suppress(OSError):
        if not any(any(one.iterdir()) for one in inside):
            for one in (*inside, path):
                one.rmdir()


def seeds_in(path: Path) -> dict[int, Path]:
    """The run folders of several seeds by seed; empty for the folder of a single run."""
    try:
        if (path / "checkpoints").is_dir():
            return {}
        named = [p for p in path.glob(f"{_SEED}*") if p.name.removeprefix(_SEED).isdecimal()]
        found = {int(p.name.removeprefix(_SEED)): p for p in named if p.is_dir()}
    except OSError:
        return {}
    return {seed: found[seed] for seed in sorted(found) if seed < 2**32}


def title(path: Path) -> str:
    """The name of a run's folder, after that of the folder of seeds if it is in one."""
    inside = path in seeds_in(path.parent).values()
    return f"{path.parent.name} {path.name}" if inside else path.name


_SEED = "seed-"


def _make(path: Path) -> None:
    if path.is_file():
        raise RondelError(f"{path} is a file. Choose a folder.")
    with explain_failure(f"The run's folder {path}"):
        path.mkdir(parents=True, exist_ok=True)


def run_metadata(setup: Setup, limits: Limits) -> dict[str, Any]:
    """The description of a run, as JSON; `setup_from` reads it back."""
    spec = setup.task.env.spec
    config = setup.config
    return {
        "algorithm": setup.name,
        "env": spec.id,
        "seed": setup.task.seed,
        "config": dataclasses.asdict(config) if dataclasses.is_dataclass(type(config)) else None,
        "options": dataclasses.asdict(setup.options),
        "total_steps": limits.steps,
        "until_return": limits.until_return if limits.until_return != float("inf") else None,
        "observation": spaces.to_json(spec.observation),
        "action": spaces.to_json(spec.action),
        "machine": setup.machine,
        "versions": {
            n: importlib.metadata.version(n) for n in ("rondel", "jax", "jaxlib", "numpy")
        },
    }


class SavedRun(NamedTuple):
    """The metadata of a run."""

    algorithm: str
    env: str
    seed: int
    config: dict[str, Any] | None  # None if it was not a dataclass
    options: dict[str, Any]
    total_steps: int
    until_return: float | None
    machine: str
    round: int
    steps: int
    in_flight: int  # rounds started but not learned from
    eval_episodes: int
    eval_every: int


_BELOW = {
    "seed": 2**32,
    "total_steps": 2**63,
    "round": 2**31,
    "steps": 2**63,
    "in_flight": 2_000,
    "eval_episodes": 2**31,
    "eval_every": 2**63,
}


def read(path: Path) -> SavedRun:
    """The metadata of the run whose checkpoint is in `path`."""
    meta = read_meta(path)
    for name, hint in typing.get_type_hints(SavedRun).items():
        if name not in meta:
            raise CheckpointError(f"{path} has no {name} in its metadata.")
        value = meta[name]
        sensible = name not in _BELOW or (fits(value, int) and 0 <= value < _BELOW[name])
        if not fits(value, hint) or not sensible:
            raise CheckpointError(
                f"{path} has {name}={reprlib.repr(value)}, which Rondel does not write."
            )
    return SavedRun(*(meta[name] for name in SavedRun._fields))


def check_lanes(path: Path, saved: SavedRun) -> None:
    """Refuse metadata with another number of lanes than the arrays."""
    lanes = saved.options.get("lanes")
    shapes = read_shapes(path)
    held = {shape[:1] for name, shape in shapes.items() if name.startswith("lanes/")}
    if not fits(lanes, int) or held != {(lanes,)}:
        raise CheckpointError(f"{path} has lanes={reprlib.repr(lanes)}, but its arrays differ.")


def check_learner(path: Path, setup: Setup) -> None:
    """Refuse metadata with larger networks than the arrays could hold."""
    asked = bytes_of(learner_like(setup.task))
    held = (path / STATE).stat().st_size
    if asked > held:
        raise CheckpointError(
            f"{path} has a learner of {asked:,} bytes, but its arrays take only {held:,}."
        )


PLACING = ("plan", "lag", "free", "on", "resources", "address", "deadline", "restarts")


def setup_from(
    saved: SavedRun, algorithm: Any, env: Any, config: Any, network: Any, placing: dict[str, Any]
) -> Setup:
    """The setup that `run_metadata` described, with the user's own parts passed again.

    `placing` has the fields of `PLACING` that should change.
    """
    if unknown := sorted(placing.keys() - set(PLACING)):
        raise RondelError(
            f"A resumed run can't change {', '.join(unknown)}. It can change where it runs: "
            f"{', '.join(PLACING)}."
        )
    name = saved.algorithm
    if algorithm is None:
        if name not in catalogue.TABLE:
            besides = " (and config=… if its module has no Config)"
            raise _needed_again("an algorithm", name, "algorithm", besides)
        algorithm = name
    known = {field.name for field in dataclasses.fields(Options)}
    if unknown := sorted(saved.options.keys() - known):
        raise RondelError(
            f"This run has an option unknown to this version of Rondel: {unknown[0]!r}."
        )
    fields = {k: v for k, v in (saved.options | placing).items() if v is not None}
    plans = (options.get("plan", Options.plan) for options in (saved.options, fields))
    before, now = (parse(str(plan)).copies("memory") for plan in plans)
    if before != now:
        raise RondelError(
            f"The plan must have {before} copies of memory, because this run's memory has that "
            f"many shards, got {now} in `{placing['plan']}`."
        )
    if config is None and saved.config is not None:
        fields |= saved.config
    # a file from a stranger must not say what is imported
    if network is None and is_own_network(fields.get("network")):
        raise _needed_again("a network", fields["network"], "network")
    if network is not None:
        fields["network"] = network
    if env is None and not can_be_made(saved.env):
        raise _needed_again("an environment", saved.env, "env")
    for name in {"lag", "free"} - placing.keys():
        if not fields.get(name):
            fields.pop(name, None)  # then the new plan decides
    return prepare(
        algorithm,
        saved.env if env is None else env,
        seed=saved.seed,
        config=config,
        tuned=False,
        fields=fields,
    )


def _needed_again(what: str, name: str, argument: str, besides: str = "") -> RondelError:
    return RondelError(
        f"This run has {what} of your own, {name!r}: pass it again, with {argument}=…{besides} in "
        f"Python or --{argument} on the command line."
    )


def can_be_made(env_id: str) -> bool:
    """Is the id in a file enough to make its environment?

    Not if it names a module: a file from a stranger must not say what is imported. An argument may
    name one too, and hide its colon: "Old-v0?id=\"module\\u003aEnv-v0\"".
    """
    world, _, name = env_id.partition(":")
    if world not in names() or ":" in name:
        return False
    return ":" not in json.dumps(split(name)[1], separators=(",", "="))


def write_config(path: Path, meta: dict[str, Any]) -> None:
    """Write config.json, for people and scripts; `resume` reads checkpoints, not this."""
    with explain_failure(str(path)):
        replace_file(path / "config.json", json.dumps(meta, indent=2) + "\n")


def home_of(found: Path) -> Path:
    """The run folder that a checkpoint belongs to."""
    return found.parent.parent if found.parent.name == "checkpoints" else found.parent


def is_finished(path: Path, newest: Path) -> bool:
    """Was the curve, the last thing that a run does, drawn after the newest checkpoint?"""
    try:
        drawn, saved = ((path / "curve.png").stat(), (newest / META).stat())
    except OSError:
        return False
    return drawn.st_mtime_ns >= saved.st_mtime_ns
