"""Commands that train: `train`, `resume`, and `explain`, which only says what would run."""

from __future__ import annotations

import dataclasses
import json
from itertools import takewhile
from typing import Any, NamedTuple

import rondel
from rondel.algorithms import catalogue
from rondel.cli.command import (
    Command,
    LoadRun,
    Log,
    On,
    as_arguments,
    joined,
    parse_as,
    parse_options,
    print_lines,
    print_result,
    stdout_for_result,
)
from rondel.errors import RondelError
from rondel.run.display import display
from rondel.run.setup.options import Options, override_fields, split_fields, tuned_for
from rondel.run.training.train import STEPS


@dataclasses.dataclass(frozen=True)
class Train:
    """Train an agent."""

    steps: int = STEPS  # environment steps
    seed: int = 0  # all randomness follows from it
    seeds: int | None = None  # train with this many seeds, from `seed` on, in folders of their own
    out: str | None = None  # the run's folder; by default a new one under runs/
    until_return: float | None = None  # stop when the last 100 episodes reach this mean return
    eval_episodes: int = 100  # greedy episodes of each evaluation; there is one at the end
    eval_every: int = 0  # steps between evaluations during training; 0 for none
    log: Log = ()  # where metrics go besides metrics.jsonl; may be given twice
    tuned: bool = True  # start from the tuned settings for this environment, if there are any
    json: bool = False  # print the result as one JSON object


@dataclasses.dataclass(frozen=True)
class Flags(Options):
    """`Options` on the command line, where free is a pair of flags and neither may be given."""

    free: bool = False  # learn from rollouts as they arrive; the lag is then an upper bound
    on: On = None  # the backend; by default processes for a cut plan, else inline


@dataclasses.dataclass(frozen=True)
class Explain:
    """Show what `train` would run, without running it.

    All options of `train` are accepted; --steps, --out and the like have no effect.
    """

    tuned: bool = True  # start from the tuned settings for this environment, if there are any
    json: bool = False  # print it as one JSON object


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resume(LoadRun):
    """Continue a run, or the runs of several seeds."""

    steps: int | None = None  # the new total of environment steps; by default that of the run
    until_return: float | None = None  # stop when the last 100 episodes reach this mean return
    eval_episodes: int | None = None  # greedy episodes at the end; by default as many as before
    eval_every: int | None = None  # steps between evaluations during training, or 0
    plan: str | None = None  # another plan; by default the run's, as for the options below
    lag: int | None = None  # rounds that the acting weights may be behind
    free: bool = False  # learn from rollouts as they arrive; the lag is then an upper bound
    on: On = None  # the backend
    resources: str | None = None  # what pieces request from Ray
    address: str | None = None  # a running Ray cluster to join
    deadline: float | None = None  # seconds until a copy that does not answer is restarted
    restarts: int | None = None  # restarts of a copy in a row without progress
    log: Log = ()  # where metrics go besides metrics.jsonl; may be given twice
    json: bool = False  # print the result as one JSON object


class Request(NamedTuple):
    """ALGORITHM ENV and what was given after them."""

    algorithm: str
    env: str
    command: Any  # Train or Explain
    fields: dict[str, Any]  # of `Options` and the algorithm's Config


def _parse_request(command: Command, argv: list[str]) -> Request:
    """ALGORITHM ENV [options]: the two say which options there are, and their defaults."""
    given = list(takewhile(lambda word: not word.startswith("-"), argv[:2]))
    wants_help = bool({"-h", "--help"} & set(argv))
    defaults: dict[str, Any] = {"Command": command.options() if wants_help else Train()}
    if len(given) < 2:
        words = " ".join([command.name, *given])
        if wants_help:
            parse_as(joined(**defaults, Options=Flags()), argv, f"{command.name} {command.usage}")
        lacks = "an environment" if given else "an algorithm and an environment"
        raise RondelError(
            f"`rondel {words}` needs {lacks} before any options, as in `rondel {command.name} "
            f"{given[0] if given else 'ppo'} CartPole-v1`. `rondel list algorithms` and `rondel "
            "list envs` show the choices."
        )
    name, env, *flags = argv
    names = {flag.partition("=")[0].replace("_", "-") for flag in flags}
    found = catalogue.find(name)
    own, rest = split_fields({} if "--no-tuned" in names else tuned_for(name, env))
    defaults["Options"] = override_fields(Flags(lanes=found.card.lanes), own)
    if found.config:
        defaults["Config"] = override_fields(found.config(), rest)
    parsed = parse_as(joined(**defaults), flags, f"{command.name} {name} {env}")
    fields = _changed(defaults["Options"], parsed.Options)
    if found.config:
        fields |= _changed(defaults["Config"], parsed.Config)
    if "--no-free" in names:  # unlike no flag at all, it overrides what a named plan says
        fields["free"] = parsed.Options.free
    return Request(name, env, parsed.Command, fields)


def _changed(default: Any, given: Any) -> dict[str, Any]:
    pairs = {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}
    return {name: value for name, value in pairs.items() if value != getattr(default, name)}


def _train(request: Request) -> None:
    shown, asked = display.Unbroken(display.choose()), as_arguments(request.command)
    with stdout_for_result():
        run = rondel.train(request.algorithm, request.env, display=shown, **asked, **request.fields)
    print_result(run.result, request.command.json)


def _explain(request: Request) -> None:
    with stdout_for_result():
        facts = rondel.explain(
            request.algorithm, request.env, tuned=request.command.tuned, **request.fields
        )
    as_json = request.command.json
    print_lines([json.dumps(dataclasses.asdict(facts)) if as_json else str(facts)])


def _parse_resume(command: Command, argv: list[str]) -> Resume:
    options: Resume = parse_options(command, argv)
    given = options.free or "--no-free" in [word.replace("_", "-") for word in argv]
    changes: dict[str, Any] = {} if given else {"free": None}
    return dataclasses.replace(options, **changes)


def _resume(options: Resume) -> None:
    asked = {name: value for name, value in as_arguments(options).items() if value is not None}
    shown = display.Unbroken(display.choose())
    with stdout_for_result():
        run = rondel.resume(asked.pop("path"), display=shown, **asked)
    print_result(run.result, options.json)


COMMANDS = (
    Command("train", "ALGORITHM ENV [--steps N]", Train, _train, _parse_request),
    Command("explain", "ALGORITHM ENV", Explain, _explain, _parse_request),
    Command("resume", "PATH [--steps N]", Resume, _resume, _parse_resume),
)
