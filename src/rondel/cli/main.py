"""The command line: `rondel COMMAND …`."""

from __future__ import annotations

import sys
import traceback

import rondel
from rondel.cli.command import Command, discard, print_lines
from rondel.cli.commands import analysis, listing, playback, training
from rondel.errors import OwnCodeError, RondelError
from rondel.formatting import closest_words
from rondel.run.training.signals import Terminated

COMMANDS: dict[str, Command] = {
    command.name: command
    for command in (*training.COMMANDS, *playback.COMMANDS, *analysis.COMMANDS, *listing.COMMANDS)
}


def main(argv: list[str] | None = None) -> None:
    """Run one command.

    The exit status is 2 for a request that can't be met, 130 after Ctrl-C, 143 after SIGTERM, and
    141 if the reader of stdout has gone, as `head` does.
    """
    argv = sys.argv[1:] if argv is None else argv
    sys.path.insert(0, "")  # as python -m does, so that module:name finds modules of this folder
    try:
        _dispatch(argv)
    except RondelError as error:
        if isinstance(error, OwnCodeError):  # the user's own traceback says where it went wrong
            traceback.print_exception(error.__cause__)
            for note in getattr(error, "__notes__", ()):  # such as the traceback of a worker
                print(note, file=sys.stderr)
        print(f"rondel: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except Terminated:
        raise  # it has its exit status
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    finally:
        try:
            sys.stderr.flush()
        except OSError:
            discard(sys.stderr)


def _dispatch(argv: list[str]) -> None:
    if not argv or argv[0] in ("-h", "--help"):
        print_lines(_help())
        raise SystemExit(0 if argv else 2)
    if argv[0] in ("-V", "--version"):
        print_lines([rondel.__version__])
        return
    if argv[0] not in COMMANDS:
        near = closest_words(argv[0], COMMANDS)
        hint = f"Did you mean `rondel {near}`?" if near else f"Use one of {', '.join(COMMANDS)}."
        if argv[0] in listing.LISTS:
            hint = f"Use `rondel list {argv[0]}`."
        raise RondelError(f"There is no command {argv[0]!r}. {hint}")
    command = COMMANDS[argv[0]]
    command.run(command.parse(command, argv[1:]))


def _help() -> list[str]:
    usages = [(f"rondel {c.name} {c.usage}", c.options.__doc__ or "") for c in COMMANDS.values()]
    width = max(len(usage) for usage, _ in usages)
    return [
        "rondel: distributed reinforcement learning on JAX",
        "",
        *(f"  {usage:{width}}  {doc.partition(chr(10))[0]}" for usage, doc in usages),
        "",
        "`rondel COMMAND --help` lists the options of a command, and `rondel train ALGORITHM ENV",
        "--help` those of the algorithm too, with their values for that environment.",
    ]
