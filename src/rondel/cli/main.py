"""The command line: rondel train | explain | resume | eval | watch | profile | plot | …"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import sys
import textwrap
import traceback
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, TextIO

import tyro

import rondel
from rondel.algorithms import catalogue
from rondel.cli.command_options import (
    Compare,
    Eval,
    Explain,
    Flags,
    Plot,
    Profile,
    Record,
    Resume,
    Train,
    Watch,
)
from rondel.envs.registry import known_ids
from rondel.errors import OwnCodeError, RondelError
from rondel.execution.backends import registry
from rondel.run.display import display
from rondel.run.profiling import diagnosis
from rondel.run.setup.config_overrides import override_fields
from rondel.run.setup.prepare import split, tuned_for
from rondel.run.storage.locate import numbered_checkpoint
from rondel.run.training.signals import Terminated

_READER_GONE = 141  # as of what ends by SIGPIPE
_USAGE = """\
rondel: distributed reinforcement learning on JAX

  rondel train ALGORITHM ENV [flags]   train an agent; every field of the algorithm is a flag
  rondel explain ALGORITHM ENV [flags] what train would run with these flags, and where
  rondel train ALGORITHM ENV --seeds 5 train five seeds, each a run of its own
  rondel resume PATH [--steps N]       go on with a run or its seeds, to N steps
  rondel eval PATH [--episodes N]      greedy episodes of what a run has learned
  rondel watch PATH [--out FILE]       a video of it: a .gif, or an .mp4
  rondel profile PATH                  where its time went, and what would make it quicker
  rondel plot PATH... [--out FILE]     learning curves of runs in one picture
  rondel compare PATH...               which of them is ahead, as a table in Markdown
  rondel record PATH FILE              episodes of it as demonstrations for others
  rondel list algorithms               what there is to train
  rondel list backends                 where copies can run, for --on
  rondel list envs [PATTERN]           what to train on; with a pattern the ids that fit, as `pole`

`rondel train ALGORITHM ENV --help` lists the flags with their values for that environment.
"""


def main(argv: list[str] | None = None) -> None:
    """Entry point; the exit status is 2 for a request that can't be met, 130 after Ctrl-C, 141 if
    who reads the answer has gone, as `head` does, 143 after SIGTERM."""
    argv = sys.argv[1:] if argv is None else argv
    sys.path.insert(0, "")  # as with python -m: environments in modules of this folder are found
    try:
        _obey(argv)
    except RondelError as error:
        if isinstance(error, OwnCodeError):  # where it went wrong is the user's to see
            traceback.print_exception(error.__cause__)
            for note in getattr(error, "__notes__", ()):  # the traceback too, of another process
                print(note, file=sys.stderr)
        print(f"rondel: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except Terminated:
        raise  # it has its status
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    finally:
        try:
            sys.stderr.flush()
        except OSError:
            _let_go(sys.stderr)


def _obey(argv: list[str]) -> None:
    commands = {
        "train": _train,
        "explain": _explain,
        "resume": _resume,
        "eval": _eval,
        "watch": _watch,
        "profile": _profile,
        "plot": _plot,
        "compare": _compare,
        "record": _record,
        "list": _list,
    }
    if not argv or argv[0] in ("-h", "--help"):
        _print([_USAGE.rstrip()])
        raise SystemExit(0 if argv else 2)
    if argv[0] in ("-V", "--version"):
        _print([rondel.__version__])
        return
    if argv[0] not in commands:
        print(f"rondel has no command {argv[0]!r}.\n\n{_USAGE}", end="", file=sys.stderr)
        raise SystemExit(2)
    commands[argv[0]](argv[1:])


def _train(argv: list[str]) -> None:
    name, env, train, fields = _asked("train", Train(), argv)
    as_json = train.pop("json")
    shown = display.Unbroken(display.choose())
    with _unmixed():
        run = rondel.train(name, env, display=shown, **train, **fields)
    _say(run.result, as_json)


def _explain(argv: list[str]) -> None:
    # all flags of `train` may stay in a command, and help names those that matter
    command = Explain() if _wants_help(argv) else Train()
    name, env, request, fields = _asked("explain", command, argv)
    with _unmixed():
        facts = rondel.explain(name, env, tuned=request["tuned"], **fields)
    _print([json.dumps(dataclasses.asdict(facts)) if request["json"] else str(facts)])


_BOTH = (
    "an algorithm and an environment",
    "`rondel list algorithms` and `rondel list envs` say",
)


def _asked(
    word: str, command: Any, argv: list[str]
) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    """ALGORITHM ENV [flags] of a command -> (algorithm, env, the command's own fields, others)."""
    given = list(takewhile(lambda one: not one.startswith("-"), argv[:2]))
    if len(given) < 2 and _wants_help(argv):
        _print([_USAGE.rstrip()])
        raise SystemExit(0)
    if len(given) < 2:
        lacks, listed = ("an environment", "`rondel list envs` says") if given else _BOTH
        example = " ".join(["rondel", word, *(given or ["ppo"]), "CartPole-v1"])
        raise RondelError(
            f"`{' '.join(['rondel', word, *given])}` needs {lacks}, before any flags: "
            f"rondel {word} ALGORITHM ENV, as in `{example}`. {listed} what there is."
        )
    name, env, *flags = argv
    found = catalogue.find(name)
    if _given([flag.partition("=")[0] for flag in flags], "--memory") and not found.recurrent:
        those = ", ".join(n for n in catalogue.TABLE if catalogue.find(n).recurrent)
        raise RondelError(f"{name} can't remember an episode, so it has no --memory; {those} can.")
    tuned = {} if _given(flags, "--no-tuned") else tuned_for(name, env)
    own, rest = split(tuned)
    options = override_fields(Flags(lanes=found.card.lanes), own)
    config = override_fields(found.config(), rest) if found.config else None
    kind = _flat(Command=command, Options=options, **({"Config": config} if config else {}))
    request = _parse(kind, flags, f"{word} {name} {env}")
    fields = _changed(options, request.Options)
    fields |= _changed(config, request.Config) if config else {}
    if _given(flags, "--no-free"):  # not the same as nothing: a plan's name may say otherwise
        fields["free"] = request.Options.free
    return name, env, dataclasses.asdict(request.Command), fields


def _wants_help(argv: list[str]) -> bool:
    return bool({"-h", "--help"} & set(argv))


def _given(flags: list[str], flag: str) -> bool:
    return flag in [given.replace("_", "-") for given in flags]


def _resume(argv: list[str]) -> None:
    request = dataclasses.asdict(_parse(Resume, argv, "resume"))
    if not (request["free"] or _given(argv, "--no-free")):
        del request["free"]
    request = {k: v for k, v in request.items() if v is not None}
    as_json = request.pop("json")
    shown = display.Unbroken(display.choose())
    with _unmixed():
        run = rondel.resume(request.pop("path"), display=shown, **request)
    _say(run.result, as_json)


def _eval(argv: list[str]) -> None:
    request = _parse(Eval, argv, "eval")
    with _unmixed():
        played = rondel.evaluate(
            request.path,
            episodes=request.episodes,
            seed=request.seed,
            env=request.env,
            network=request.network,
            deadline=request.deadline,
        )
    _say(
        {
            "path": request.path,
            "episodes": request.episodes,
            "seed": request.seed,
            "eval_return": played.mean,
            "eval_return_std": float(played.returns.std()),
            "eval_length": float(played.lengths.mean()),
            "unfinished": played.unfinished,
        },
        request.json,
    )


def _watch(argv: list[str]) -> None:
    request = dataclasses.asdict(_parse(Watch, argv, "watch"))
    path, number, as_json = (request.pop(name) for name in ("path", "checkpoint", "json"))
    with _unmixed():
        seen = rondel.watch(
            path if number is None else numbered_checkpoint(path, number), **request
        )
    _say(
        {
            "path": str(seen.path),
            "episodes": request["episodes"],
            "seed": request["seed"],
            "returns": seen.returns,
            "lengths": seen.lengths,
            "unfinished": seen.unfinished,
        },
        as_json,
    )


def _profile(argv: list[str]) -> None:
    request = _parse(Profile, argv, "profile")
    with _unmixed():
        found = rondel.profile(
            request.path,
            apart=request.apart,
            env=request.env,
            network=request.network,
            trace=request.trace,
            overwrite=request.overwrite,
        )
    # to run stages apart has just been tried, unless it was left out
    how = "" if request.apart else None
    text = diagnosis.diagnose(found, Path(request.path), how).text
    where = [] if request.trace is None else ["", f"Trace: {request.trace}"]
    said = textwrap.wrap(text, 80, break_on_hyphens=False, break_long_words=False)
    _print([found.table(), "", *said, *where])


def _plot(argv: list[str]) -> None:
    request = _parse(Plot, argv, "plot")
    path = rondel.plot(
        request.paths,
        request.out,
        against=request.against,
        iqm=request.iqm,
        overwrite=request.overwrite,
    )
    _print([str(path)])


def _compare(argv: list[str]) -> None:
    request = _parse(Compare, argv, "compare")
    _print([str(rondel.compare(request.paths, iqm=request.iqm))])


def _record(argv: list[str]) -> None:
    request = _parse(Record, argv, "record")
    with _unmixed():
        mean = rondel.record(
            request.path,
            request.file,
            request.env,
            episodes=request.episodes,
            seed=request.seed,
            overwrite=request.overwrite,
            network=request.network,
            deadline=request.deadline,
        )
    said = {"file": request.file, "episodes": request.episodes, "mean_return": mean}
    _say(said, False)


def _list(argv: list[str]) -> None:
    match argv:
        case ["algorithms"]:
            _print(map(_algorithm, catalogue.TABLE))
        case ["envs", *pattern] if len(pattern) <= 1:
            _print(_ids(*pattern))
        case ["backends"]:
            _print(registry.listing())
        case _:
            raise RondelError(
                "rondel list takes `algorithms`, `backends`, or `envs` and perhaps a part of an id."
            )


def _ids(pattern: str = "") -> list[str]:
    """Environments whose id has `pattern` in it, or fits it if it has a * or the like."""
    ids = [f"{world}:{name}" for world, names in known_ids().items() for name in names]
    glob = pattern.lower() if set(pattern) & set("*?[") else f"*{pattern.lower()}*"
    if found := [one for one in ids if fnmatchcase(one.lower(), glob)]:
        return found
    raise RondelError(
        f"None of {len(ids):,} ids fits {pattern!r}: a part of one, such as `pole`, or a pattern, "
        "such as 'gymnasium:*-v5', would work."
    )


def _algorithm(name: str) -> str:
    found = catalogue.find(name)
    card = found.card
    lag = "any lag" if card.max_lag is None else f"lag up to {card.max_lag}"
    memory = "recurrent" if found.recurrent else ""
    means = f"{card.family:13} {card.actions:21} {memory:10} {lag:12}"
    return f"{name:10} {means} `{card.plan}`  {card.paper}"


def _flat(**defaults: Any) -> Any:
    """One record of several, whose fields are all flags without a prefix; the first has the doc."""
    parts = [
        (name, Annotated[type(value), tyro.conf.arg(name="")], dataclasses.field(default=value))
        for name, value in defaults.items()
    ]
    doc = next(iter(defaults.values())).__doc__
    return dataclasses.make_dataclass("Request", parts, namespace={"__doc__": doc})


def _parse(kind: Any, argv: list[str], command: str) -> Any:
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)
    with _answering():  # help is one
        return tyro.cli(kind, args=argv, prog=f"rondel {command}", config=config)


def _changed(default: Any, given: Any) -> dict[str, Any]:
    pairs = {f.name: getattr(given, f.name) for f in dataclasses.fields(given)}
    return {name: value for name, value in pairs.items() if value != getattr(default, name)}


def _say(result: dict[str, Any], as_json: bool) -> None:
    told = (
        f"{name:17} {value:.6g}" if isinstance(value, float) else f"{name:17} {value}"
        for name, value in result.items()
        if value is not None and name != "runs"  # not known, not asked for, or said before
    )
    _print([json.dumps(result)] if as_json else told)


@contextmanager
def _unmixed() -> Iterator[None]:
    """Stdout is for the answer: whatever else is printed meanwhile goes to stderr.

    Environments print, and so does Ray; other processes, and what is not Python, by descriptor 1.
    """
    with ExitStack() as undo:
        with suppress(OSError):  # one of the two is closed
            sys.stdout.flush()
            answers = os.dup(1)
            undo.callback(os.close, answers)
            os.dup2(2, 1)
            undo.callback(os.dup2, answers, 1)
            undo.callback(ctypes.CDLL(None).fflush, None)  # what C has not written yet
            if sys.__stdout__ is not None:  # what was printed by who had it before
                undo.callback(sys.__stdout__.flush)
        undo.enter_context(redirect_stdout(sys.stderr))
        yield


def _print(lines: Iterable[str]) -> None:
    with _answering():
        print(*lines, sep="\n")


@contextmanager
def _answering() -> Iterator[None]:
    """An answer is printed to stdout: whoever reads it may have gone, and a disk may be full."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:  # it was not wanted any more, so there is nothing to say
        _let_go(sys.stdout)
        raise SystemExit(_READER_GONE) from None
    except OSError as error:
        _let_go(sys.stdout)
        raise RondelError(f"The answer can't be printed: {error.strerror}.") from None


def _let_go(stream: TextIO) -> None:
    """Write no more: what is left over would fail once more, with a traceback, at the very end."""
    with suppress(OSError, ValueError):  # not each is a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
