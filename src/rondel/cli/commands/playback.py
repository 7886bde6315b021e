"""Commands that play a policy: `eval`, `watch`, `record`."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import tyro

import rondel
from rondel.cli.command import Command, LoadRun, call, print_result


@dataclasses.dataclass(frozen=True, kw_only=True)
class Playback(LoadRun):
    """Options of all commands that play."""

    seed: int = 0  # the environments' randomness follows from it
    deadline: float | None = None  # seconds until an environment that does not answer is an error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eval(Playback):
    """Play greedy episodes, in fresh environments."""

    episodes: int = 100  # how many to play
    json: bool = False  # print the result as one JSON object


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watch(Playback):
    """Make a video of greedy episodes."""

    out: str | None = None  # a .gif or an .mp4; by default a new .gif in the run's folder
    episodes: int = 1  # how many to play
    steps: int = 1_000  # steps of an episode to show at most
    fps: int = 30  # frames per second
    overwrite: bool = False  # replace an existing file
    json: bool = False  # print the result as one JSON object


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record(Playback):
    """Record greedy episodes as demonstrations."""

    file: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="FILE")]  # where to write
    episodes: int = 100  # how many to play
    overwrite: bool = False  # replace an existing file


def _eval(options: Eval) -> None:
    played = call(rondel.evaluate, options)
    result = {
        "path": options.path,
        "episodes": options.episodes,
        "seed": options.seed,
        "eval_return": played.mean,
        "eval_return_std": float(played.returns.std()),
        "eval_length": float(played.lengths.mean()),
        "unfinished": played.unfinished,
    }
    print_result(result, options.json)


def _watch(options: Watch) -> None:
    seen = call(rondel.watch, options)
    result = {"path": str(seen.path), "episodes": options.episodes, "seed": options.seed}
    result |= {"returns": seen.returns, "lengths": seen.lengths, "unfinished": seen.unfinished}
    print_result(result, options.json)


def _record(options: Record) -> None:
    mean = call(rondel.record, options)
    result: dict[str, Any] = {"file": options.file, "episodes": options.episodes}
    print_result(result | {"mean_return": mean}, as_json=False)


COMMANDS = (
    Command("eval", "PATH [--episodes N]", Eval, _eval),
    Command("watch", "PATH [--out FILE]", Watch, _watch),
    Command("record", "PATH FILE", Record, _record),
)
